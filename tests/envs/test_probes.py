"""The probe environments do what their docstrings promise: the trainer's own tests rely on it."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs import native
from jaxrl.envs.base import Dict

# The one of several agents has tests of its own (tests/experience/agents/).
AGENTS = "ProbeAgents"
NAMES = sorted(f"jaxrl:{name}" for name in native.names() if name.startswith("Probe") and name != AGENTS)


@functools.cache
def programs(env):
    return jax.jit(env.reset), jax.jit(env.step)


def rollout(env, actions, key=0):
    """Steps with `actions`, a list or a function of (state, obs); returns the first obs and timesteps."""
    reset, step = programs(env)
    state, first = reset(jax.random.key(key))
    obs, timesteps = first, []
    for t in range(20):
        action = actions(state, obs) if callable(actions) else actions[t]
        state, timestep = step(jax.random.fold_in(jax.random.key(key), t), state, jnp.asarray(action))
        obs = timestep.obs
        timesteps.append(timestep)
        if timestep.done:
            break
    return first, timesteps


def one_step_rewards(name, action_of):
    """Rewards of 32 one-step episodes; the observations must differ where `action_of` uses them."""
    rewards, env = [], envs.make(name)
    for key in range(32):
        _, (timestep,) = rollout(env, lambda state, obs: action_of(obs), key)
        assert timestep.terminated
        assert not timestep.truncated
        rewards.append(float(timestep.reward))
    return np.array(rewards)


@pytest.mark.parametrize("name", NAMES)
def test_spec(name):
    env = envs.make(name)
    assert env.spec.name.partition("(")[0] == name
    assert envs.make(env.spec.name).spec == env.spec
    assert hash(env.spec) is not None
    zeros = np.zeros(env.spec.action_space.shape, env.spec.action_space.dtype)
    first, timesteps = rollout(env, [zeros] * 20)
    space = env.spec.observation_space
    spaces = dict(space.spaces) if isinstance(space, Dict) else {"": space}
    for obs in (first, *(timestep.obs for timestep in timesteps)):
        for key, leaf in obs.items() if isinstance(obs, dict) else [("", obs)]:
            assert leaf.shape == spaces[key].shape
            assert leaf.dtype == spaces[key].dtype
            assert (leaf.ravel() >= np.array(spaces[key].low)).all()
            assert (leaf.ravel() <= np.array(spaces[key].high)).all()
    for timestep in timesteps:
        assert (timestep.reward.dtype, timestep.terminated.dtype) == (jnp.float32, jnp.bool_)
    assert timesteps[-1].done
    assert len(timesteps) <= env.spec.max_episode_steps


def test_value():
    assert (one_step_rewards("jaxrl:ProbeValue", lambda obs: 0) == 1).all()


def test_observation():
    rewards = one_step_rewards("jaxrl:ProbeObservation", lambda obs: 0)
    assert set(rewards) == {-1, 1}
    first, (timestep,) = rollout(envs.make("jaxrl:ProbeObservation"), [0])
    assert timestep.reward == first[0]


def test_discount():
    first, timesteps = rollout(envs.make("jaxrl:ProbeDiscount"), [0, 0])
    assert first == 0
    assert [float(t.reward) for t in timesteps] == [0, 1]
    assert [bool(t.terminated) for t in timesteps] == [False, True]
    assert timesteps[0].obs == 1


def test_action():
    assert (one_step_rewards("jaxrl:ProbeAction", lambda obs: 1) == 1).all()
    assert (one_step_rewards("jaxrl:ProbeAction", lambda obs: 0) == -1).all()


def test_policy():
    assert (one_step_rewards("jaxrl:ProbePolicy", lambda obs: (obs[0] > 0).astype(int)) == 1).all()
    assert set(one_step_rewards("jaxrl:ProbePolicy", lambda obs: 1)) == {-1, 1}


def test_continuous():
    assert (one_step_rewards("jaxrl:ProbeContinuous", lambda obs: obs / 2) == 0).all()
    # The targets are 1/2 and -1/2.
    assert set(one_step_rewards("jaxrl:ProbeContinuous", lambda obs: jnp.ones(1))) == {-0.25, -2.25}


def test_multi_discrete():
    table = np.array([(0, 1), (1, 2), (0, 0)])
    assert (one_step_rewards("jaxrl:ProbeMultiDiscrete", lambda obs: table[int(jnp.argmax(obs))]) == 1).all()
    for fixed in np.ndindex(2, 3):
        rewards = one_step_rewards("jaxrl:ProbeMultiDiscrete", lambda obs: np.array(fixed))  # noqa: B023
        assert set(rewards) <= {0, 1}
        assert rewards.mean() < 0.7


def test_dict():
    def bits(obs):
        return 2 * int(obs["image"].max() > 0) + int(obs["vector"][0] > 0)

    assert (one_step_rewards("jaxrl:ProbeDict", bits) == 1).all()
    # Blind to one key, a policy is right in half of the cases: neither suffices.
    for blind in (lambda obs: bits(obs) & 1, lambda obs: bits(obs) & 2):
        assert 0.2 < one_step_rewards("jaxrl:ProbeDict", blind).mean() < 0.8


def test_truncation_never_terminates():
    _, timesteps = rollout(envs.make("jaxrl:ProbeTruncation(steps=3)"), [0] * 9)
    assert [bool(t.truncated) for t in timesteps] == [False, False, True]
    assert not any(t.terminated for t in timesteps)
    assert all(t.reward == 1 and t.obs[0] == 1 for t in timesteps)


def test_termination_never_truncates():
    first, timesteps = rollout(envs.make("jaxrl:ProbeTermination(steps=3)"), [0] * 9)
    assert [bool(t.terminated) for t in timesteps] == [False, False, True]
    assert not any(t.truncated for t in timesteps)
    assert all(t.reward == 1 for t in timesteps)
    seen = np.stack([first, *(t.obs for t in timesteps)])
    np.testing.assert_array_equal(seen, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("delay", [1, 6])
def test_memory(delay):
    env = envs.make(f"jaxrl:ProbeMemory({delay=})")
    cues = set()
    for key in range(12):
        cue = float(env.reset(jax.random.key(key))[1][0])
        cues.add(cue)
        for answer in (0, 1):
            # Only the action at the step where the flag is up counts.
            first, timesteps = rollout(env, [1 - answer] * delay + [answer], key)
            assert len(timesteps) == delay + 1
            assert [float(t.reward) for t in timesteps[:-1]] == [0] * delay
            assert timesteps[-1].reward == (1 if answer == (cue > 0) else -1)
            assert timesteps[-1].terminated
            due = [float(obs[1]) for obs in (first, *(t.obs for t in timesteps[:-1]))]
            assert due == [0] * delay + [1]
            # The cue is never shown again.
            assert all(t.obs[0] == 0 for t in timesteps)
    assert cues == {-1, 1}


def test_mask():
    env = envs.make("jaxrl:ProbeMask(steps=4)")
    forbidden = set()
    for key in range(8):
        _, timesteps = rollout(env, lambda state, obs: jnp.argmax(env.action_mask(state)), key)
        assert [float(t.reward) for t in timesteps] == [1, 1, 1, 1]
        assert timesteps[-1].terminated
        state, _ = env.reset(jax.random.key(key))
        mask = np.asarray(env.action_mask(state))
        assert mask.sum() == 2
        forbidden.add(int(np.argmin(mask)))
        _, timestep = env.step(jax.random.key(key), state, jnp.argmin(mask))
        assert timestep.reward == -100
        assert timestep.terminated
    assert forbidden == {0, 1, 2}
