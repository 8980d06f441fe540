"""One episode of any environment, with a picture of every step."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry
from jaxrl.envs.agents import MultiAgentEnv
from jaxrl.envs.agents.multi_agent import WholeEnv
from jaxrl.envs.base import EnvSpec, JaxEnv
from jaxrl.envs.host.filming import film_worker_env
from jaxrl.envs.host.worker_env import WorkerFactory
from jaxrl.envs.host_env import HostFactory, HostOptions
from jaxrl.envs.pictures import CannotRender, Shot, draw, image_of, reports_of
from jaxrl.envs.tasks import default_arguments
from jaxrl.envs.wrappers.host import WrappedFactory

# Takes an action for each shot that is not the last.
Film = Generator[Shot, Any, None]


def film(name: str, wrappers: Sequence[str], seed: int, task: Any = None) -> Film:
    """Plays one episode, on the device of `task` if one is given (`jaxrl.envs.tasks`).

    Pictures come from the environment (gymnax's visualizer, `rgb_array` of Gymnasium and PettingZoo, a
    `render(state)` of a custom device environment), else the observations where those are images.

    Raises:
      CannotRender: there is neither.
      HostEnvError: the environment failed.
    """
    if not registry.is_host(name):
        env = registry.make(name, wrappers)
        if env.spec.agents:
            return _film_agents(WholeEnv(cast(MultiAgentEnv, env)), seed)
        return _film_device(env, seed, default_arguments(env) if task is None else (task,))
    factory = registry.make_host(name, wrappers)
    bare = factory.unwrapped if isinstance(factory, WrappedFactory) else factory
    if isinstance(bare, WorkerFactory):
        return film_worker_env(bare, seed, factory.decode)
    return _film_observations(factory, seed)


def _film_device(env: JaxEnv, seed: int, arguments: tuple[Any, ...]) -> Film:
    reset_key, key = jax.random.split(jax.random.key(seed))
    state, obs = jax.jit(env.reset)(reset_key, *arguments)
    step = jax.jit(env.step)
    over = False
    t = 0
    reward = 0.0
    names = [report.name for report in env.spec.reports]
    reports = dict[str, float]()
    while True:
        mask = np.asarray(env.action_mask(state)) if env.spec.has_action_mask else None
        picture = partial(_picture, env, state, obs)
        action = yield Shot(jax.device_get(obs), mask, picture, over, reward, reports=reports)
        state, timestep = step(jax.random.fold_in(key, t), state, jnp.asarray(action))
        obs = timestep.obs
        over = bool(timestep.done)
        t = t + 1
        reward = float(timestep.reward)
        reports = reports_of(jax.device_get(timestep.info), names)


def _film_agents(env: WholeEnv, seed: int) -> Film:
    """Takes an action for each agent; those of agents that are not there count for nothing."""
    reset_key, key = jax.random.split(jax.random.key(seed))
    state, obs = jax.jit(env.reset)(reset_key)
    fresh = np.ones(env.spec.num_agents, bool)
    step = jax.jit(env.step)
    over = False
    t = 0
    reward = 0.0
    while True:
        mask = np.asarray(env.action_mask(state)) if env.spec.has_action_mask else None
        picture = partial(_picture, env.env, state, obs)
        action = yield Shot(jax.device_get(obs), mask, picture, over, reward, fresh)
        state, timestep = step(jax.random.fold_in(key, t), state, jnp.asarray(action))
        obs = timestep.obs
        over = bool(timestep.done)
        t = t + 1
        reward = float(timestep.reported_reward.sum())
        flags = timestep.team
        fresh = np.asarray(~flags.took_part | flags.terminated | flags.truncated)


def _picture(env: JaxEnv, state: Any, obs: Any) -> np.ndarray:
    """The environment's own picture if it has one, else the observation."""
    try:
        if not hasattr(env, "render"):
            raise CannotRender(_reason(env.spec))
        found: np.ndarray = env.render(state)
        return found
    except CannotRender:
        if env.spec.agents or not image_of(env.spec.observation_space):
            raise
        return draw(np.asarray(obs), env.spec.observation_space)


def _film_observations(factory: HostFactory, seed: int) -> Film:
    if not image_of(factory.spec.observation_space):
        raise CannotRender(_reason(factory.spec))
    names = tuple(report.name for report in factory.spec.reports)
    env = factory.start(HostOptions(seeds=(seed,), info_keys=names))
    over = False
    try:
        while True:
            step = env.recv(0)
            obs = np.asarray(factory.decode(jnp.asarray(step.obs)))[0]
            over = bool(step.game_over[0])
            picture = partial(draw, obs, factory.spec.observation_space)
            reports = reports_of({name: x[0] for name, x in step.info.items()}, names)
            action = yield Shot(obs, None, picture, over, float(step.reward[0]), reports=reports)
            env.send(0, np.asarray(action)[None])
    finally:
        env.close()


def _reason(spec: EnvSpec) -> str:
    return f"{spec.name} cannot be rendered: it has no pictures, and its observations are no images"
