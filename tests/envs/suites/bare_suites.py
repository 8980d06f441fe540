"""Suites written in JAX without their adapters: the suite's own functions, cut off after few steps."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass
class Bare:
    """The suite's own functions; keys are raw, observations as the adapter's spec has them.

    Attributes:
      reset: key -> (state, obs).
      step: (key, state, action) -> (state, obs, reward, terminated, truncated).
      mask: state -> bool[A], or None.
    """

    reset: Callable[..., Any]
    step: Callable[..., Any]
    mask: Callable[..., Any] | None = None


def craftax() -> Bare:
    module = importlib.import_module("craftax.craftax_env")
    env = module.make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = env.default_params.replace(max_timesteps=6)

    def reset(key):
        obs, state = env.reset(key, params)
        return state, obs

    def step(key, state, action):
        obs, state, reward, done, _ = env.step(key, state, action, params)
        # Nobody dies in so few steps.
        return state, obs, reward, done & (state.timestep < 6), done & (state.timestep == 6)

    return Bare(reset, step)


def navix() -> Bare:
    package = importlib.import_module("navix")
    env = package.make("Navix-Empty-5x5-v0", max_steps=5, observation_fn=package.observations.symbolic)

    def reset(key):
        timestep = env.reset(key)
        return timestep, timestep.observation

    def step(key, timestep, action):
        after = env.step(timestep, action)
        return after, after.observation, after.reward, after.step_type == 2, after.step_type == 1

    return Bare(reset, step)


def xminigrid() -> Bare:
    package = importlib.import_module("xminigrid")
    env, params = package.make("MiniGrid-MemoryS8", max_steps=7)

    def reset(key):
        timestep = env.reset(params, key)
        return timestep, timestep.observation

    def step(key, timestep, action):
        after = env.step(params, timestep, action)
        last, terminated = after.last(), after.discount == 0
        # The adapter says both where the last step is also the one that ends it.
        return after, after.observation, after.reward, terminated, last & (after.state.step_num == 7)

    return Bare(reset, step)


def brax() -> Bare:
    package = importlib.import_module("brax.envs")
    # The suite's own counter of steps, without its restarts.
    env = package.create("reacher", episode_length=4, auto_reset=False, backend="spring")

    def reset(key):
        state = env.reset(key)
        return state, state.obs

    def step(key, state, action):
        after = env.step(state, action)
        cut = after.info["truncation"] == 1
        return after, after.obs, after.reward, (after.done == 1) & ~cut, cut

    return Bare(reset, step)


def jumanji() -> Bare:
    package = importlib.import_module("jumanji")
    env = package.make("Maze-v0", time_limit=6)

    def seen(observation):
        return {
            "agent_position.col": observation.agent_position.col,
            "agent_position.row": observation.agent_position.row,
            "step_count": observation.step_count,
            "target_position.col": observation.target_position.col,
            "target_position.row": observation.target_position.row,
            "walls": observation.walls.astype(jnp.float32),
        }

    def reset(key):
        state, timestep = env.reset(key)
        return (state, timestep), seen(timestep.observation)

    def step(key, state, action):
        state, timestep = env.step(state[0], action)
        ended, goes_on = timestep.last(), timestep.discount > 0
        return (
            (state, timestep),
            seen(timestep.observation),
            timestep.reward,
            ended & ~goes_on,
            ended & goes_on,
        )

    return Bare(reset, step, lambda state: state[1].observation.action_mask)


def pgx() -> Bare:
    package = importlib.import_module("pgx")
    env = package.make("connect_four")

    def others(state, key):
        given = jnp.float32(0)
        for _ in range(2):  # nobody moves more than once in a row
            key, choice, move = jax.random.split(key, 3)
            logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
            moved = env.step(state, jax.random.categorical(choice, logits), jax.random.key_data(move))
            waits = (state.current_player != 0) & ~state.terminated
            given = given + jnp.where(waits, moved.rewards[0], 0)
            state = jax.tree.map(lambda x, y, waits=waits: jnp.where(waits, x, y), moved, state)
        return state, given

    def reset(key):
        start, others_key = jax.random.split(key)
        state, _ = others(env.init(jax.random.key_data(start)), others_key)
        return state, env._observe(state, 0).astype(jnp.float32)

    def step(key, state, action):
        move, others_key = jax.random.split(key)
        state = env.step(state, action, jax.random.key_data(move))
        reward = state.rewards[0]
        state, more = others(state, others_key)
        obs = env._observe(state, 0).astype(jnp.float32)
        return state, obs, reward + more, state.terminated, state.truncated

    return Bare(reset, step, lambda state: state.legal_action_mask)


def playground() -> Bare:
    registry = importlib.import_module("mujoco_playground").registry
    env = registry.load("CartpoleSwingup", config_overrides={"impl": "jax"})

    def reset(key):
        state = env.reset(key)
        return (state, 0), state.obs

    def step(key, state, action):
        after = env.step(state[0], action)
        count = state[1] + 1
        return (after, count), after.obs, after.reward, after.done == 1, count == 4

    return Bare(reset, step)


def popgym_arcade() -> Bare:
    package = importlib.import_module("popgym_arcade")
    env, params = package.make("NavigatorEasy", partial_obs=True)

    def reset(key):
        obs, state = env.reset_env(key, params)
        return state, quarter(obs)

    def step(key, state, action):
        obs, state, reward, done, info = env.step_env(key, state, action, params)
        return state, quarter(obs), reward, done & info["terminated"], done & info["truncated"]

    def quarter(obs):
        rows = [obs[i::4, j::4].astype(jnp.float32) for i in range(4) for j in range(4)]
        return jnp.round(sum(rows) / 16).astype(jnp.uint8)

    return Bare(reset, step)


# By suite: the name of the same environment, its own functions, and how many steps to compare.
CASES = {
    "brax": ("brax:reacher(episode_length=4, backend='spring')", brax, 10),
    "craftax": ("craftax:Craftax-Classic-Symbolic-v1(max_timesteps=6)", craftax, 14),
    "jumanji": ("jumanji:Maze-v0(time_limit=6)", jumanji, 14),
    "navix": ("navix:Navix-Empty-5x5-v0(max_steps=5)", navix, 40),
    "pgx": ("pgx:connect_four", pgx, 60),
    "playground": ("playground:CartpoleSwingup(episode_length=4)", playground, 10),
    "popgym_arcade": ("popgym_arcade:NavigatorEasy(partial_obs=True, scale=4)", popgym_arcade, 80),
    "xminigrid": ("xminigrid:MiniGrid-MemoryS8(max_steps=7)", xminigrid, 30),
}
