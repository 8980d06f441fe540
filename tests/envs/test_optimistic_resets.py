"""Resets in rounds: the same episodes as without, for as many resets as episodes end."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.vector import VectorEnv
from tests.compiled_programs import Noise

B = 10


class Scripted(JaxEnv):
    """Starts at a number drawn from the key, and ends where the action says so. Counts computed resets."""

    def __init__(self, resets: list[int] | None = None) -> None:
        self.spec = EnvSpec("test:Scripted", Box.of(0.0, 1.0, (2,)), Discrete(2))
        self._resets = resets

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        start = jax.random.uniform(key, (2,))
        if self._resets is not None:
            jax.debug.callback(lambda _: self._resets.append(1), start)
        return {"start": start, "big": jnp.broadcast_to(start[0], (7, 7))}, start

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        over, never = action == 1, jnp.zeros((), bool)
        return state, TimeStep(state["start"], jnp.float32(1), over, never)


def with_ratio(env: JaxEnv, ratio: int) -> VectorEnv:
    env.spec = dataclasses.replace(env.spec, reset_ratio=ratio)
    return VectorEnv(env, stagger=True)


def steps_of(env: VectorEnv, length: int, batch: int = B) -> Any:
    keys = jax.random.split(jax.random.key(3), (length + 1) * batch).reshape(length + 1, batch)

    def step(state: Any, keys_B: jax.Array) -> tuple[Any, Any]:
        state, timestep = env.step(keys_B, state, jnp.zeros(batch, jnp.int32))
        return state, timestep

    return jax.jit(lambda keys: jax.lax.scan(step, env.reset(keys[0])[0], keys[1:]))(keys)


@pytest.mark.slow
def test_every_step_is_that_of_resets_at_once() -> None:
    # Of ten environments a fifth ends at random in each step, others at the limit; a round resets 4 or 1.
    plain, *others = (
        steps_of(with_ratio(Noise(0.1, 0.1, max_episode_steps=5), ratio), length=40) for ratio in (1, 3, 1000)
    )
    assert plain[1].done.sum() > 60
    for rounds in others:
        jax.tree.map(np.testing.assert_array_equal, plain, rounds)


@pytest.mark.slow
def test_no_two_environments_start_alike_and_a_batch_may_be_divided() -> None:
    keys = jax.random.split(jax.random.key(1), 2 * B)
    over, env = jnp.ones(2 * B, jnp.int32), with_ratio(Scripted(), 4)
    begun, _ = jax.jit(env.reset)(keys)
    state, timestep = jax.tree.map(np.asarray, jax.jit(env.step)(keys, begun, over))
    assert len(np.unique(timestep.obs[:, 0])) == 2 * B
    assert not np.isin(timestep.obs, timestep.final_obs).any()
    np.testing.assert_array_equal(state.env["big"][:, 6, 6], timestep.obs[:, 0])
    # Half of the batch alone, as on one of two devices.
    half = jax.tree.map(lambda x: x[B:], begun)
    np.testing.assert_array_equal(jax.jit(env.step)(keys[B:], half, over[B:])[1].obs, timestep.obs[B:])


@pytest.mark.slow
def test_members_of_a_population_do_not_disturb_each_other() -> None:
    # Under vmap the loop goes on until the member with most ended episodes is done.
    env = with_ratio(Scripted(), 5)
    keys = jax.random.split(jax.random.key(2), 2 * B).reshape(2, B)
    states = jax.jit(jax.vmap(lambda keys: env.reset(keys)[0]))(keys)
    actions = np.stack([np.ones(B, np.int32), np.arange(B, dtype=np.int32) == 3])
    _, together = jax.jit(jax.vmap(env.step))(keys, states, actions)
    step = jax.jit(env.step)
    for member in range(2):
        state = jax.tree.map(lambda x, i=member: x[i], states)
        _, alone = step(keys[member], state, actions[member])
        np.testing.assert_array_equal(together.obs[member], alone.obs)


@pytest.mark.parametrize(
    ("ended", "computed"), [*(pytest.param(*x, marks=pytest.mark.slow) for x in ((0, 0), (8, 8))), (5, 6)]
)
def test_as_many_resets_as_episodes_end_rounded_up_to_whole_rounds(ended: int, computed: int) -> None:
    resets: list[int] = []
    env, keys = with_ratio(Scripted(resets), 4), jax.random.split(jax.random.key(1), 8)
    state, obs = jax.jit(env.reset)(keys)
    jax.effects_barrier()
    resets.clear()
    action = (np.arange(8) >= 8 - ended).astype(np.int32)
    _, timestep = jax.jit(env.step)(keys, state, action)
    jax.block_until_ready(timestep)
    jax.effects_barrier()
    assert len(resets) == computed
    np.testing.assert_array_equal((np.asarray(timestep.obs) != np.asarray(obs)).all(axis=1), action == 1)


def test_the_wrapper_says_how_many() -> None:
    name = "gymnax:CartPole-v1"
    assert VectorEnv(envs.make(name, ["optimistic_resets", "frame_stack(frames=2)"])).spec.reset_ratio == 64
    assert not VectorEnv(envs.make(name, ["optimistic_resets(ratio=1)"])).resets_in_rounds
    with pytest.raises(ValueError, match=r"optimistic_resets: ratio \(=0\) must be"):
        envs.make(name, ["optimistic_resets(ratio=0)"])
