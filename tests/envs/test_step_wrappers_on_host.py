"""Wrappers of steps on the host."""

from __future__ import annotations

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Box
from jaxrl.envs.host_env import HostOptions
from tests.envs.test_step_wrappers import HOST, MODULE


def on_host(*wrappers: str, steps: int = 9) -> tuple[SimpleNamespace, object]:
    """Rows of 2 environments of 3 steps each, decoded; the row after an end is the first of the next."""
    factory = envs.make_host(HOST, wrappers)
    env = factory.start(HostOptions(seeds=(7, 8)))
    rows = []
    try:
        for t in range(steps):
            if t:
                env.send(0, np.full(2, t % 4))
            step = env.recv(0)
            names = ("reward", "score", "first", "terminated", "truncated")
            rows.append(
                {"obs": np.array(factory.decode(step.obs)), **{n: np.copy(getattr(step, n)) for n in names}}
            )
    finally:
        env.close()
    return SimpleNamespace(**jax.tree.map(lambda *x: np.stack(x), *rows)), factory.spec


def test_wrappers_on_the_host():
    raw, _ = on_host()
    assert raw.first[:, 0].tolist() == [True, *[False] * 3] * 2 + [True]
    found, spec = on_host("reward_clip(low=2.5, high=12)", "frame_stack(frames=2)", "previous_reward")
    assert spec.observation_space == Box.of(-math.inf, math.inf, (7,))
    np.testing.assert_array_equal(found.terminated | found.truncated, raw.terminated | raw.truncated)
    np.testing.assert_array_equal(found.score, raw.reward)
    np.testing.assert_array_equal(found.reward, np.where(raw.first, 0, np.clip(raw.reward, 2.5, 12)))
    before = np.concatenate([raw.obs[:1], raw.obs[:-1]])
    expected = [np.where(raw.first[..., None], raw.obs, before), raw.obs, found.reward[..., None]]
    np.testing.assert_array_equal(found.obs, np.concatenate(expected, axis=-1))


@pytest.mark.slow
def test_rewards_are_shaped_on_the_host():
    raw, _ = on_host()
    shaping = f'reward_shaping(function="{MODULE}:told", scale=2.0)'
    wrappers = ("frame_stack(frames=2)", "reward_scale(factor=10)", shaping, "reward_scale(factor=3)")
    found, _ = on_host(*wrappers, "previous_reward")
    before = found.obs[:-1, :, :6]
    after = found.obs[1:, :, :6]
    actions = np.broadcast_to(np.arange(1, 9)[:, None] % 4, (8, 2))
    expected = 10 * raw.reward[1:] + 2 * actions + 100 * before[..., 5] + 1000 * after[..., 5]
    np.testing.assert_allclose(found.reward[1:], np.where(raw.first[1:], 0, 3 * expected), rtol=1e-6)
    assert not found.reward[0].any()
    np.testing.assert_array_equal(found.score, raw.reward)
    np.testing.assert_array_equal(found.obs[..., 6], found.reward)


@pytest.mark.slow
def test_shaping_on_the_host_sees_what_the_environment_declares():
    name, shaping = HOST.replace("Count", "Telling"), f'reward_shaping(function="{MODULE}:timed")'
    env = envs.make_host(name, [shaping]).start(HostOptions(seeds=(1, 2)))
    try:
        env.recv(0)
        rewards = []
        for _ in range(2):
            env.send(0, np.zeros(2, np.int32))
            rewards.append(np.copy(env.recv(0).reward))
        assert env.traced() is None
    finally:
        env.close()
    # It says its time in every second step, the first of them.
    np.testing.assert_array_equal(rewards[0], [1, 1])
    assert np.isnan(rewards[1]).all()


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([f'reward_shaping(function="{MODULE}:timed")'], "raised KeyError"),
        (["action_repeat(times=2)"], "needs a device environment"),
        (["noisy_observation(std=0.1)"], "needs a device environment"),
    ],
)
def test_what_is_refused_on_the_host(wrappers, message):
    with pytest.raises(ValueError, match=message):
        envs.make_host(HOST, wrappers)


def test_shaping_on_the_host_needs_jax_on_the_cpu():
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cuda")
    try:
        with pytest.raises(ValueError, match=r"`JAX_PLATFORMS` \(=cuda\) leaves out: .* set it to cuda,cpu"):
            envs.make_host(HOST, [f'reward_shaping(function="{MODULE}:told")'])
    finally:
        jax.config.update("jax_platforms", before)


def test_programs_step_environments_with_other_rewards():
    factory = envs.make_host("envpool:CartPole-v1", ["reward_scale(factor=3)", "previous_reward"])
    env = factory.start(HostOptions(seeds=(1, 2)))
    stacked = envs.make_host("envpool:CartPole-v1", ["frame_stack(frames=2)"]).start(HostOptions(seeds=(1,)))
    try:
        first = env.recv(0)
        traced = env.traced()
        assert traced is not None
        assert stacked.traced() is None

        def steps(handle):
            handle = traced.send(0, handle, jnp.zeros(2, jnp.int32))
            _, step, finite = traced.recv(0, handle, jnp.zeros(2, bool))
            return factory.decode(step.obs), step, finite

        obs, step, finite = jax.jit(steps)(traced.handles[0])
        assert finite.all()
        np.testing.assert_array_equal(step.reward, [3, 3])
        np.testing.assert_array_equal(step.score, [1, 1])
        np.testing.assert_array_equal(obs[:, -1], [3, 3])
        np.testing.assert_array_equal(factory.decode(first.obs)[:, -1], [0, 0])
    finally:
        env.close()
        stacked.close()
