"""`VectorEnv` against a loop that steps one environment by hand, and what it promises beside."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs import vector
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.vector import VectorEnv


class KeyEnv(JaxEnv):
    """Episodes of `length` steps whose observations are the raw data of the keys they were given."""

    def __init__(self, length: int, on_reset: Any = None):
        self._length = length
        self._on_reset = on_reset
        self.spec = EnvSpec(
            "test:Key", Box.of(0, 2**32 - 1, (2,), np.uint32), Discrete(2), max_episode_steps=99
        )

    def reset(self, key):
        if self._on_reset is not None:
            jax.debug.callback(self._on_reset, key)
        # A Python number and a key: states that users write.
        return {"time": 0, "key": key}, jax.random.key_data(key)

    def step(self, key, state, action):
        time = state["time"] + 1
        no = jnp.zeros((), bool)
        timestep = TimeStep(jax.random.key_data(key), jnp.float32(time), time >= self._length, no)
        return {"time": time, "key": key}, timestep


@partial(jax.jit, static_argnums=2)
def keys_at(key: jax.Array, t: int, num_envs: int) -> jax.Array:
    return jax.vmap(lambda b: jax.random.fold_in(jax.random.fold_in(key, b), t))(jnp.arange(num_envs))


@partial(jax.jit, static_argnums=(0, 2, 3))
def run(env: VectorEnv, key: jax.Array, num_steps: int, num_envs: int) -> Any:
    """Returns the first observations [B, O] and the timesteps [T, B] under random binary actions."""
    state, obs_BO = env.reset(keys_at(key, 0, num_envs))

    def step(state: Any, t: jax.Array) -> Any:
        keys_B = keys_at(key, t, num_envs)
        action_B = jax.vmap(lambda k: jax.random.randint(jax.random.fold_in(k, 77), (), 0, 2))(keys_B)
        return env.step(keys_B, state, action_B)

    _, timesteps = jax.lax.scan(step, state, jnp.arange(1, num_steps + 1))
    return obs_BO, timesteps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gymnax:CartPole-v1", "gymnax:CartPole-v1(max_steps_in_episode=9)"])
def test_against_one_environment_stepped_by_hand(name):
    num_envs, num_steps = 3, 60
    env = envs.make(name)
    obs_BO, timesteps = jax.tree.map(np.asarray, run(VectorEnv(env), jax.random.key(0), num_steps, num_envs))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    num_done = 0
    for b in range(num_envs):
        key = jax.random.fold_in(jax.random.key(0), b)
        state, obs = reset(jax.random.fold_in(key, 0))
        np.testing.assert_allclose(obs_BO[b], obs, rtol=1e-6)
        for t in range(num_steps):
            step_key = jax.random.fold_in(key, t + 1)
            action = jax.random.randint(jax.random.fold_in(step_key, 77), (), 0, 2)
            state, expected = step(step_key, state, action)
            next_obs = expected.obs
            if expected.done:
                num_done += 1
                state, next_obs = reset(jax.random.fold_in(step_key, vector._RESET))
                # correctness 8: the bootstrap needs the last observation, not the next episode's first.
                assert np.abs(timesteps.final_obs[t, b] - timesteps.obs[t, b]).max() > 1e-3
            got = jax.tree.map(lambda x: x[t, b], timesteps)  # noqa: B023
            np.testing.assert_allclose(got.obs, next_obs, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(got.final_obs, expected.obs, rtol=1e-4, atol=1e-5)
            assert got.reward == expected.reward
            assert (bool(got.terminated), bool(got.truncated)) == (
                bool(expected.terminated),
                bool(expected.truncated),
            )
    assert num_done > num_envs


@pytest.mark.slow
def test_steps_at_which_nothing_ends_are_plain_steps():
    env = envs.make("gymnax:CartPole-v1")
    batch = VectorEnv(env)
    keys_B = keys_at(jax.random.key(0), 0, 4)
    state, _ = batch.reset(keys_B)
    plain, plain_step = state.env, jax.jit(jax.vmap(env.step))
    step = jax.jit(batch.step)
    for t in range(1, 6):
        keys_B, action_B = keys_at(jax.random.key(0), t, 4), jnp.arange(4) % 2
        state, timestep = step(keys_B, state, action_B)
        plain, expected = plain_step(keys_B, plain, action_B)
        assert not timestep.done.any()
        chex.assert_trees_all_equal(state.env, plain)
        chex.assert_trees_all_equal(timestep.obs, timestep.final_obs, expected.obs)


def test_resets_cost_nothing_while_no_episode_ends():
    calls = []
    env = VectorEnv(KeyEnv(3, on_reset=lambda key: calls.append(1)))
    run(env, jax.random.key(0), 8, 5)
    jax.effects_barrier()
    # The first reset, and those at steps 3 and 6, of 5 environments each.
    assert len(calls) == 3 * 5


@pytest.mark.parametrize("stagger", [False, True])
def test_the_type_of_a_state_never_changes(stagger):
    # `KeyEnv` counts with a Python number, as users do; one program must serve first and later states.
    env = VectorEnv(KeyEnv(3), stagger)
    keys_B = keys_at(jax.random.key(0), 0, 2)
    first, _ = jax.eval_shape(env.reset, keys_B)
    following, _ = jax.eval_shape(lambda: env.step(keys_B, env.reset(keys_B)[0], jnp.zeros(2, jnp.int32)))
    assert following == first
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((first, following)))


@pytest.mark.slow
def test_keys_of_resets_and_steps_are_distinct():
    # correctness 25. `split(key, n)[i]` equals `fold_in(key, i)`: a reset key made with a small number would
    # be one that the environment's own step has used.
    env = VectorEnv(KeyEnv(1), stagger=True)
    key = jax.random.key(5)
    obs_BO, timesteps = run(env, key, 3, 2)
    seen = {tuple(map(int, row)) for row in np.concatenate([obs_BO, timesteps.final_obs.reshape(-1, 2)])}
    assert len(seen) == 8
    for t in range(1, 4):
        for step_key in keys_at(key, t, 2):
            seen |= {tuple(map(int, row)) for row in jax.random.key_data(jax.random.split(step_key, 256))}
    resets = {tuple(map(int, row)) for row in timesteps.obs.reshape(-1, 2)}
    assert len(resets) == 6
    assert not resets & seen


@pytest.mark.slow
@pytest.mark.parametrize("stagger", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_row_depends_on_its_own_key_only(stagger):
    # correctness 12: environments may be divided over devices in any way.
    env = VectorEnv(envs.make("gymnax:CartPole-v1(max_steps_in_episode=12)"), stagger)
    keys_B, action_B = keys_at(jax.random.key(3), 0, 6), jnp.array([0, 1, 1, 0, 1, 0])

    @jax.jit
    def play(keys_B: jax.Array, action_B: jax.Array) -> Any:
        def step(state: Any, t: jax.Array) -> Any:
            return env.step(jax.vmap(lambda key: jax.random.fold_in(key, t))(keys_B), state, action_B)

        return jax.lax.scan(step, env.reset(keys_B)[0], jnp.arange(30))

    whole = play(keys_B, action_B)
    rows = np.array([4, 1])
    state, timesteps = play(keys_B[rows], action_B[rows])
    chex.assert_trees_all_close(state, jax.tree.map(lambda x: x[rows], whole[0]), rtol=1e-5)
    chex.assert_trees_all_close(timesteps, jax.tree.map(lambda x: x[:, rows], whole[1]), rtol=1e-5)
    assert timesteps.done.any()


def first_episode_lengths(done_TB: np.ndarray) -> np.ndarray:
    return np.argmax(done_TB, axis=0) + 1


def test_stagger_cuts_first_episodes_at_uniform_points():
    # correctness 24: without it every environment of a batch would be at the same step for ever.
    num_envs, limit = 2000, 5
    env = VectorEnv(envs.make(f"jaxrl:ProbeTruncation(steps={limit})"), stagger=True)
    assert env.staggered
    _, timesteps = run(env, jax.random.key(0), 4 * limit, num_envs)
    truncated_TB = np.asarray(timesteps.truncated)
    assert not timesteps.terminated.any()
    first = first_episode_lengths(truncated_TB)
    # 400 of each length are expected; the standard deviation is 18.
    counts = np.bincount(first, minlength=limit + 1)[1:]
    assert counts.sum() == num_envs
    assert np.abs(counts - num_envs / limit).max() < 80
    for b in range(20):
        ends = np.flatnonzero(truncated_TB[:, b]) + 1
        np.testing.assert_array_equal(ends, first[b] + limit * np.arange(len(ends)))


@pytest.mark.slow
def test_stagger_leaves_later_episodes_alone():
    # Episodes terminate after 2 steps while the cut is drawn from [1, 99]: an environment that was not cut at
    # once has a second episode when its cut would fall due.
    env = VectorEnv(KeyEnv(2), stagger=True)
    _, timesteps = run(env, jax.random.key(1), 120, 200)
    first = first_episode_lengths(np.asarray(timesteps.done))
    assert set(first) == {1, 2}
    assert not timesteps.truncated[2:].any()
    assert not timesteps.terminated[0].any()


@pytest.mark.parametrize("limit", [None, 1])
def test_nothing_to_stagger(limit):
    env = envs.make("jaxrl:ProbeTruncation")
    env.spec = dataclasses.replace(env.spec, max_episode_steps=limit)
    batch = VectorEnv(env, stagger=True)
    assert not batch.staggered
    _, timesteps = run(batch, jax.random.key(0), 5, 50)
    assert not timesteps.truncated[:4].any()


def test_not_staggered_unless_asked():
    batch = VectorEnv(envs.make("jaxrl:ProbeTruncation(steps=5)"))
    assert not batch.staggered
    _, timesteps = run(batch, jax.random.key(0), 5, 50)
    assert not timesteps.truncated[:4].any()
    assert timesteps.truncated[4].all()


@pytest.mark.slow
def test_action_mask_belongs_to_the_state_after_the_reset():
    batch = VectorEnv(envs.make("jaxrl:ProbeMask(steps=2)"))
    state, _ = batch.reset(keys_at(jax.random.key(0), 0, 16))
    step = jax.jit(batch.step)
    for t in range(1, 8):
        mask_BA = batch.action_mask(state)
        chex.assert_shape(mask_BA, (16, 3))
        # argmax takes the first allowed action; the mask of the state before a reset would forbid another.
        state, timestep = step(keys_at(jax.random.key(0), t, 16), state, jnp.argmax(mask_BA, axis=1))
        assert (timestep.reward == 1).all()
        assert timestep.done.all() == (t % 2 == 0)
    assert VectorEnv(envs.make("jaxrl:ProbeValue")).action_mask(None) is None


@pytest.mark.slow
def test_dict_observations_are_reset_key_by_key():
    obs, timesteps = run(VectorEnv(envs.make("jaxrl:ProbeDict")), jax.random.key(0), 6, 8)
    chex.assert_shape(timesteps.obs["image"], (6, 8, 8, 8, 1))
    assert timesteps.obs["image"].dtype == jnp.uint8
    # Every step ends an episode whose last observation equals its first, that is the one before.
    for name in ("image", "vector"):
        np.testing.assert_array_equal(timesteps.final_obs[name][0], obs[name])
        np.testing.assert_array_equal(timesteps.final_obs[name][1:], timesteps.obs[name][:-1])
        assert (timesteps.final_obs[name] != timesteps.obs[name]).any()
