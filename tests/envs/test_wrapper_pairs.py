"""Pairs of wrappers in both orders: an environment on the host gives what it gives on the device."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.host_env import HostOptions
from jaxrl.envs.vector import VectorEnv

DEVICE = "tests.envs.wrapped_environments:Whole"
HOST = "gymnasium:tests.envs.host_environments:Whole"
SHAPING = 'reward_shaping(function="tests.envs.wrapped_environments:everything", scale=2.0)'
STACK = "frame_stack(frames=3)"
WRAPPERS = [
    "flatten_observation",
    STACK,
    "mask_observation(indices=(1,), value=1)",
    "one_hot_observation(values=4)",
    'potential_shaping(function="tests.envs.wrapped_environments:total", gamma=0.9, scale=0.5)',
    "previous_reward",
    'report(key="time")',
    "reward_clip(low=-0.5, high=0.75)",
    "reward_scale(factor=0.5)",
    SHAPING,
    "select_observation(indices=(1, 0))",
    "tests.envs.wrapped_environments:Plus",
]
# Shaping and stacks see what the wrappers inside made of an observation; there the two sides can part. They
# meet a wrapper of each kind (of a shape, of rewards in an observation, of a state, of rewards, of
# the user's own). Each of the others, which tests/envs/test_step_wrappers_on_host.py has, meets the next one
# of the list in the long tests.
KINDS = {
    SHAPING,
    STACK,
    "one_hot_observation(values=4)",
    "previous_reward",
    'potential_shaping(function="tests.envs.wrapped_environments:total", gamma=0.9, scale=0.5)',
    "reward_clip(low=-0.5, high=0.75)",
    "tests.envs.wrapped_environments:Plus",
}
PAIRS = [
    *(p for p in itertools.product(WRAPPERS, repeat=2) if {SHAPING, STACK} & {*p} and {*p} <= KINDS),
    *(
        pytest.param(pair, marks=pytest.mark.long)
        for pair in itertools.pairwise(WRAPPERS)
        if not {SHAPING, STACK} & {*pair}
    ),
    ("frame_stack(frames=1)", SHAPING),
    ("previous_reward", "frame_stack(frames=2)", SHAPING, "frame_stack(frames=3)", "previous_reward"),
    (SHAPING, "previous_reward", "frame_stack(frames=2)", "reward_scale(factor=3)", SHAPING),
]
T, B = 11, 2


def on_the_device(wrappers):
    """Observation acted on, reward, reported reward, ends and last observation of T steps, [T, B, ...]."""
    env = VectorEnv(envs.make(DEVICE, wrappers))
    keys = jax.random.split(jax.random.key(0), B)

    def step(loop, t):
        state, obs = loop
        state, found = env.step(keys, state, (t + jnp.arange(B)) % 3)
        row = (obs, found.reward, found.reported_reward, found.terminated, found.truncated, found.final_obs)
        return (state, found.obs), row

    rows = jax.jit(lambda: jax.lax.scan(step, env.reset(keys), jnp.arange(T))[1])()
    return jax.tree.map(np.asarray, rows)


def on_the_host(wrappers):
    factory = envs.make_host(HOST, wrappers)
    env = factory.start(HostOptions(seeds=tuple(range(B)), num_workers=1))
    decode = jax.jit(factory.decode)
    rows = []
    try:
        obs, t = np.array(decode(env.recv(0).obs)), 0
        while t < T:
            env.send(0, (t + np.arange(B)) % 3)
            step = env.recv(0)
            last = np.array(decode(step.obs))
            if step.first.any():
                assert step.first.all()
                assert not step.reward.any()
            else:
                ends = (np.copy(step.terminated), np.copy(step.truncated))
                rows.append((obs, np.copy(step.reward), np.copy(step.score), *ends, last))
                t += 1
            obs = last
    finally:
        env.close()
    return tuple(np.stack(x) for x in zip(*rows, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("wrappers", PAIRS, ids=" ".join)
def test_the_host_does_as_the_device(wrappers):
    refusals = []
    for make, name in ((envs.make, DEVICE), (envs.make_host, HOST)):
        try:
            make(name, wrappers)
        except ValueError as error:
            refusals.append(str(error).split(";")[0])
    if refusals:
        assert len(refusals) == 2
        assert refusals[0] == refusals[1]
        return
    expected = on_the_device(wrappers)
    for ours, theirs in zip(on_the_host(wrappers), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
