"""Every wrapper changes what it says, and its spec with it."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Box, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.wrappers import wrap
from jaxrl.envs.wrappers.observations import OneHotObservation

KEY = jax.random.key(0)


class EchoEnv(JaxEnv):
    """The observation is the action that was carried out."""

    def __init__(self, action_space=None):
        space = Box.of(-2.0, 3.0, (1,)) if action_space is None else action_space
        self.spec = EnvSpec("test:Echo", Box.of(-2.0, 3.0, space.shape), space)

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(self.spec.action_space.shape, jnp.float32)

    def step(self, key, state, action):
        no = jnp.zeros((), bool)
        return state + 1, TimeStep(action.astype(jnp.float32), jnp.float32(10.0) * (state + 1), no, no)


def assert_in_spec(env, obs):
    space = env.spec.observation_space
    assert obs.shape == space.shape
    assert obs.dtype == space.dtype
    assert len(space.low) == len(space.high) == math.prod(space.shape)
    assert hash(env.spec) is not None


def test_select_observation():
    plain = envs.make("gymnax:CartPole-v1")
    env = envs.make("gymnax:CartPole-v1", ["select_observation(indices=(2, 0))"])
    state, obs = env.reset(KEY)
    plain_state, plain_obs = plain.reset(KEY)
    np.testing.assert_array_equal(obs, [plain_obs[2], plain_obs[0]])
    _, timestep = env.step(KEY, state, jnp.int32(1))
    _, plain_timestep = plain.step(KEY, plain_state, jnp.int32(1))
    np.testing.assert_array_equal(timestep.obs, [plain_timestep.obs[2], plain_timestep.obs[0]])
    assert_in_spec(env, obs)
    plain_space = plain.spec.observation_space
    assert env.spec.observation_space.high == (plain_space.high[2], plain_space.high[0])


@pytest.mark.parametrize("indices", ["(0, 4)", "(-1,)", "()", "(0.5,)"])
def test_select_observation_refuses(indices):
    with pytest.raises(ValueError, match=r"indices .*\[0, 4\)"):
        envs.make("gymnax:CartPole-v1", [f"select_observation(indices={indices})"])


@pytest.mark.slow
def test_flatten_observation():
    env = envs.make("gymnax:Breakout-MinAtar", ["flatten_observation"])
    state, obs = env.reset(KEY)
    assert_in_spec(env, obs)
    plain_obs = envs.make("gymnax:Breakout-MinAtar").reset(KEY)[1]
    np.testing.assert_array_equal(obs, np.asarray(plain_obs).ravel())
    assert env.step(KEY, state, jnp.int32(0))[1].obs.shape == (400,)


def test_one_hot_observation():
    env = envs.make("gymnax:FrozenLake-misc(is_slippery=False)", ["one_hot_observation"])
    state, obs = env.reset(KEY)
    assert_in_spec(env, obs)
    np.testing.assert_array_equal(obs, np.eye(16)[0])
    # Action 2 moves right, from tile 0 to 1.
    np.testing.assert_array_equal(env.step(KEY, state, jnp.int32(2))[1].obs, np.eye(16)[1])


class CodesEnv(EchoEnv):
    """The observation is what lies on two tiles: uint8[2, 1]."""

    def __init__(self):
        super().__init__()
        self.spec = EnvSpec("test:Codes", Box.of(0, 255, (2, 1), np.uint8), self.spec.action_space)

    def reset(self, key):
        return super().reset(key)[0], jnp.array([[2], [3]], jnp.uint8)


def test_one_hot_observation_of_an_array():
    env = OneHotObservation(CodesEnv(), values=3)
    _, obs = env.reset(KEY)
    assert_in_spec(env, obs)
    np.testing.assert_array_equal(obs, [[0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gymnax:CartPole-v1", "", "needs a Discrete observation or an array of integers"),
        ("gymnax:FrozenLake-misc", "(values=3)", "values is for arrays"),
    ],
)
def test_one_hot_observation_refuses(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        envs.make(name, [f"one_hot_observation{arguments}"])


@pytest.mark.parametrize(("values", "message"), [(None, "needs values=N"), (0, "must be an integer in")])
def test_one_hot_observation_needs_to_know_how_many(values, message):
    with pytest.raises(ValueError, match=message):
        OneHotObservation(CodesEnv(), values=values)


@pytest.mark.parametrize("wrapper", ["frame_stack", "one_hot_observation(values=3)"])
def test_what_works_on_the_last_axis_refuses_channels_first(wrapper):
    env = EchoEnv()
    env.spec = dataclasses.replace(env.spec, observation_space=Box.of(0, 2, (3, 7, 7), np.uint8))
    with pytest.raises(ValueError, match=r"pictures \[3, 7, 7\] with channels or frames first: do it in"):
        wrap(env, wrapper)


def test_time_limit_truncates_and_does_not_terminate():
    env = envs.make("jaxrl:ProbeMemory(delay=9)", ["time_limit(steps=3)"])
    assert env.spec.max_episode_steps == 3
    state, _ = env.reset(KEY)
    for expected in (False, False, True):
        state, timestep = env.step(KEY, state, jnp.int32(0))
        assert bool(timestep.truncated) is expected
        assert not timestep.terminated


def test_time_limit_keeps_a_shorter_one():
    env = envs.make("jaxrl:ProbeTruncation(steps=2)", ["time_limit(steps=30)"])
    assert env.spec.max_episode_steps == 2
    state, _ = env.reset(KEY)
    state, _ = env.step(KEY, state, jnp.int32(0))
    assert env.step(KEY, state, jnp.int32(0))[1].truncated


def test_masks_pass_through_wrappers():
    env = envs.make("jaxrl:ProbeMask", ["previous_action", "time_limit(steps=3)", "flatten_observation"])
    assert env.spec.has_action_mask
    state, _ = env.reset(KEY)
    plain = envs.make("jaxrl:ProbeMask")
    np.testing.assert_array_equal(env.action_mask(state), plain.action_mask(plain.reset(KEY)[0]))


def test_sticky_actions_repeat_the_action_last_carried_out():
    env = envs.wrappers.wrap(EchoEnv(), "sticky_actions(probability=0.25)")

    def step(state, inputs):
        state, timestep = env.step(inputs[0], state, inputs[1])
        return state, timestep.obs[0]

    num_steps = 4000
    # The action of step t is t + 1, so that what was carried out says when it was chosen.
    chosen = jnp.arange(1, num_steps + 1, dtype=jnp.float32).reshape(-1, 1)
    _, done = jax.lax.scan(step, env.reset(KEY)[0], (jax.random.split(KEY, num_steps), chosen))
    repeated = np.asarray(done)[1:] == np.asarray(done)[:-1]
    np.testing.assert_array_equal(np.asarray(done)[1:][~repeated], chosen[1:, 0][~repeated])
    # The standard deviation of the share is 0.007.
    assert abs(repeated.mean() - 0.25) < 0.03


def test_the_first_action_of_an_episode_does_not_stick():
    env = envs.wrappers.wrap(EchoEnv(), "sticky_actions(probability=1.0)")
    state, _ = env.reset(KEY)
    state, timestep = env.step(KEY, state, jnp.array([2.0]))
    assert timestep.obs[0] == 2.0
    _, timestep = env.step(KEY, state, jnp.array([3.0]))
    assert timestep.obs[0] == 2.0


def test_sticky_actions_refuse_masks_and_bad_probabilities():
    with pytest.raises(ValueError, match="masks"):
        envs.make("jaxrl:ProbeMask", ["sticky_actions"])
    with pytest.raises(ValueError, match=r"probability \(=1.5\)"):
        envs.make("jaxrl:ProbeValue", ["sticky_actions(probability=1.5)"])


@pytest.mark.parametrize(
    ("space", "action", "features"),
    [
        (envs.base.Discrete(3), 2, [0, 0, 1]),
        (MultiDiscrete((2, 3)), [1, 0], [0, 1, 1, 0, 0]),
        (Box.of(-1.0, 1.0, (2,)), [0.5, -0.5], [0.5, -0.5]),
    ],
)
def test_previous_action(space, action, features):
    inner = EchoEnv(space) if space.shape else envs.make("gymnax:MountainCar-v0")
    env = envs.wrappers.wrap(inner, "previous_action")
    size = inner.spec.observation_space.shape[0]
    state, obs = env.reset(KEY)
    assert_in_spec(env, obs)
    np.testing.assert_array_equal(obs[size:], np.zeros(len(features) + 1))
    _, timestep = env.step(KEY, state, jnp.asarray(action))
    expected_reward = 10.0 if space.shape else -1.0
    np.testing.assert_array_equal(timestep.obs[size:], [*features, expected_reward])
    assert timestep.obs.dtype == jnp.float32
    without = envs.wrappers.wrap(inner, "previous_action(reward=False)")
    np.testing.assert_array_equal(
        without.step(KEY, without.reset(KEY)[0], jnp.asarray(action))[1].obs[size:], features
    )


def test_limit_cost_counts_steps_beyond_the_bound_and_changes_nothing_else() -> None:
    plain = envs.make("gymnax:CartPole-v1")
    costly = envs.make("gymnax:CartPole-v1", ("limit_cost(index=2, bound=0.05)", "time_limit(steps=50)"))
    state, _ = plain.reset(jax.random.key(0))
    theirs, _ = costly.reset(jax.random.key(0))
    costs = []
    for _ in range(9):
        state, timestep = plain.step(jax.random.key(1), state, jnp.int32(1))
        theirs, other = costly.step(jax.random.key(1), theirs, jnp.int32(1))
        np.testing.assert_array_equal(timestep.obs, other.obs)
        assert other.info["cost"] == (abs(timestep.obs[2]) > 0.05)
        costs.append(float(other.info["cost"]))
    assert {0.0, 1.0} == set(costs)
    for wrong in ("limit_cost(index=4, bound=1)", "limit_cost(index=0, bound=-1)"):
        with pytest.raises(ValueError, match="wrapper limit_cost"):
            envs.make("gymnax:CartPole-v1", (wrong,))
