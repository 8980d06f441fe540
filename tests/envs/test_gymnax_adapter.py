"""The gymnax adapter: every environment keeps to its spec and does what gymnax does."""

from __future__ import annotations

from functools import partial
from typing import Any

import chex
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import envs
from jaxrl.envs import registry
from jaxrl.envs.base import Box, Dict, Discrete

NUM_ENVS = 3
NUM_STEPS = 4
# MNISTBandit downloads its data.
NAMES = [name for name in gymnax.registered_envs if name != "MNISTBandit-bsuite"]


def sample_action(env: Any, key: jax.Array) -> jax.Array:
    space = env.spec.action_space
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.n)
    low, high = (np.reshape(bound, space.shape) for bound in (space.low, space.high))
    return jax.random.uniform(key, space.shape, minval=low, maxval=high)


def types_of(tree: Any) -> list[Any]:
    return [(x.shape, x.dtype, x.weak_type) for x in map(jax.typeof, jax.tree.leaves(tree))]


def play(env: Any, num_steps: int, key: jax.Array) -> Any:
    """Scans one environment without resets; returns its first observation and the timesteps [T]."""
    state, obs = env.reset(key)

    def step(state: Any, key: jax.Array) -> Any:
        following, timestep = env.step(key, state, sample_action(env, jax.random.fold_in(key, 99)))
        # Counters that gymnax starts as Python numbers are weakly typed until the first step: a program
        # compiled for the reset state would be compiled again for the next.
        assert types_of(following) == types_of(state)
        assert not any(weak for _, _, weak in types_of(state))
        return following, timestep

    _, timesteps = jax.lax.scan(step, state, jax.random.split(key, num_steps))
    return obs, timesteps


# They take as long to trace as all others together.
LARGE = ("Asterix-MinAtar", "Freeway-MinAtar", "Seaquest-MinAtar", "SpaceInvaders-MinAtar")


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow if x in LARGE else ()) for x in NAMES]
)
def test_shapes_and_dtypes_are_those_of_the_spec_and_never_change(name):
    # Spaces declare other dtypes than observations have (Catch, FourRooms); rewards are integers
    # (UmbrellaChain, BernoulliBandit).
    env = envs.make(f"gymnax:{name}")
    keys_B = jax.random.split(jax.random.key(0), NUM_ENVS)
    # Tracing checks all of this; compiling the larger games would take seconds each.
    obs_BO, timesteps = jax.eval_shape(jax.vmap(partial(play, env, NUM_STEPS)), keys_B)
    space = env.spec.observation_space
    chex.assert_shape(obs_BO, (NUM_ENVS, *space.shape))
    chex.assert_shape(timesteps.obs, (NUM_ENVS, NUM_STEPS, *space.shape))
    assert obs_BO.dtype == timesteps.obs.dtype == space.dtype
    chex.assert_shape([timesteps.reward, timesteps.terminated, timesteps.truncated], (NUM_ENVS, NUM_STEPS))
    chex.assert_type([timesteps.reward, timesteps.terminated, timesteps.truncated], [float, bool, bool])
    assert timesteps.info == {}
    assert timesteps.final_obs is None
    assert hash(env.spec) == hash(envs.make(f"gymnax:{name}").spec)
    assert isinstance(env.spec.max_episode_steps, int)


def test_environment_whose_data_are_missing(monkeypatch):
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("gymnax.utils.load_mnist.load_mnist", fail)
    with pytest.raises(ValueError, match=r"MNISTBandit-bsuite needs data .*no route to host"):
        envs.make("gymnax:MNISTBandit-bsuite")


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("MemoryChain-bsuite", "Breakout-MinAtar", "UmbrellaChain-bsuite")
        ),
    ],
)
def test_same_transitions_as_gymnax(name):
    env = envs.make(f"gymnax:{name}")
    reference, params = gymnax.make(name)
    _, reference_state = reference.reset(jax.random.key(1), params)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, _ = reset(jax.random.key(1))

    @jax.jit
    def draw(t):
        key = jax.random.fold_in(jax.random.key(2), t)
        # gymnax splits its key in this way and resets by itself; the successor is in its info.
        return key, sample_action(env, key), jax.random.split(key)

    num_done = 0
    for t in range(40):
        key, action, (step_key, reset_key) = draw(t)
        state, timestep = step(step_key, state, action)
        _, reference_state, reward, terminated, truncated, info = reference.step(
            key, reference_state, action, params
        )
        np.testing.assert_allclose(timestep.obs, info["final_observation"], rtol=1e-4, atol=1e-5)
        assert timestep.reward == reward
        assert (bool(timestep.terminated), bool(timestep.truncated)) == (bool(terminated), bool(truncated))
        if timestep.done:
            num_done += 1
            state, _ = reset(reset_key)
    assert num_done > 0


def test_step_computes_no_reset(monkeypatch):
    # gymnax's own `step` resets every environment at every step and throws most of it away.
    env = envs.make("gymnax:CartPole-v1")
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    monkeypatch.setattr(type(env._env), "reset_env", None)
    jax.eval_shape(env.step, jax.random.key(1), state, jnp.int32(0))


def test_both_flags_may_be_true():
    # correctness 9: the limit and the natural end may fall on one step; neither hides the other here.
    env = envs.make("gymnax:MemoryChain-bsuite(memory_length=3, max_steps_in_episode=4)")
    _, timesteps = jax.jit(partial(play, env, 4))(jax.random.key(0))
    np.testing.assert_array_equal(timesteps.terminated, [False, False, False, True])
    np.testing.assert_array_equal(timesteps.truncated, [False, False, False, True])


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("MemoryChain-bsuite(memory_length=6)", 7),
        ("SimpleBandit-bsuite", 1),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("UmbrellaChain-bsuite(chain_length=5)", 5),
                ("Catch-bsuite", 9),
                ("DeepSea-bsuite(size=6)", 6),
                ("DiscountingChain-bsuite(max_steps_in_episode=11)", 11),
                ("BernoulliBandit-misc(max_steps_in_episode=12)", 12),
            )
        ),
    ],
)
def test_max_episode_steps_is_the_length_of_an_episode(name, steps):
    # correctness 24: staggering needs the step at which episodes really end, not a limit never reached.
    env = envs.make(f"gymnax:{name}")
    assert env.spec.max_episode_steps == steps
    _, timesteps = jax.jit(partial(play, env, steps))(jax.random.key(0))
    np.testing.assert_array_equal(timesteps.done, [False] * (steps - 1) + [True])


def test_frozen_lake_takes_its_limit_from_the_map():
    assert envs.make("gymnax:FrozenLake-misc").spec.max_episode_steps == 100
    assert envs.make("gymnax:FrozenLake-misc(map_name='8x8')").spec.max_episode_steps == 200
    assert envs.make("gymnax:FrozenLake-misc").spec.observation_space == Discrete(16)


def test_episode_that_would_be_cut_before_its_only_reward():
    with pytest.raises(ValueError, match=r"2001 steps .*max_steps_in_episode"):
        envs.make("gymnax:MemoryChain-bsuite(memory_length=2000)")


def test_arguments_reach_parameters_and_constructors():
    env = envs.make("gymnax:MemoryChain-bsuite(memory_length=40, num_bits=3)")
    assert env.spec.max_episode_steps == 41
    assert env.spec.observation_space.shape == (5,)
    assert env.spec.name == "gymnax:MemoryChain-bsuite(memory_length=40, num_bits=3)"
    # An int where gymnax has a float must not make the parameter an integer.
    assert type(envs.make("gymnax:Pendulum-v1(g=9)")._params.g) is float


def test_absent_bounds_are_infinite():
    space = envs.make("gymnax:CartPole-v1").spec.observation_space
    assert isinstance(space, Box)
    assert [bool(np.isinf(high)) for high in space.high] == [False, True, False, True]
    assert not space.bounded
    assert envs.make("gymnax:Pendulum-v1").spec.action_space == Box.of(-2.0, 2.0, (1,))


OWN = "gymnax:tests.envs.gymnax_environments"


@pytest.mark.parametrize("kind", ["OldWalk", "Walk"])
def test_a_class_of_ones_own_with_the_api_of_today_or_of_pure_jax_rl(kind):
    # By hand: 0.25 a step, beyond 0.5 at the third; without moving, cut off at the fourth.
    env = envs.make(f"{OWN}:{kind}")
    assert env.spec.max_episode_steps == 4
    for action, rewards, terminated, truncated in (
        (1, [0.25, 0.5, 0.75], [False, False, True], [False] * 3),
        (0, [0.0] * 4, [False] * 4, [False, False, False, True]),
    ):
        state, _ = env.reset(jax.random.key(0))
        found = []
        for _ in rewards:
            state, timestep = env.step(jax.random.key(0), state, jnp.int32(action))
            found.append(timestep)
        assert [float(x.reward) for x in found] == rewards
        assert [bool(x.terminated) for x in found] == terminated
        assert [bool(x.truncated) for x in found] == truncated
        assert bool(found[-1].info["is_success"]) == (action == 1)
    jaxrl.check_env(f"{OWN}:{kind}")


def test_arguments_and_trust_of_a_class_of_ones_own():
    name = f"{OWN}:OldWalk(stride=1, goal=3, max_steps_in_episode=7)"
    env = envs.make(name)
    assert (env.spec.name, env.spec.max_episode_steps) == (name, 7)
    assert type(env._params.goal) is float
    assert registry.is_custom(name)
    assert registry.module_of(name) == "tests.envs.gymnax_environments"
    assert not registry.is_custom("gymnax:CartPole-v1")
    assert registry.module_of("gymnax:CartPole-v1") is None


def test_a_class_of_ones_own_without_time():
    env = envs.make(f"{OWN}:Endless")
    assert env.spec.max_episode_steps is None
    assert env.spec.observation_space == Dict((("x", Box.of(0, 2, ())),))
    state, _ = env.reset(jax.random.key(0))
    _, timestep = env.step(jax.random.key(0), state, jnp.int32(1))
    assert not bool(timestep.truncated)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{OWN}:OldWalk(strid=1)", "unknown argument of .*; did you mean stride"),
        (f"{OWN}:OldWalk(goal='far')", "must be of type float"),
        (f"{OWN}:EnvParams", "EnvParams lacks reset_env, step_env"),
        (f"{OWN}:Missing", "has no Missing"),
        ("gymnax:tests.envs.host_environments:Count", "write gymnasium:tests.envs.host_environments:Count"),
        (f"{OWN.removeprefix('gymnax:')}:Walk", f"an environment of gymnax: write {OWN}:Walk"),
        ("tests.envs.host_environments:Count", "write gymnasium:tests.envs.host_environments:Count"),
        ("tests.envs.host_environments:Batch", "it is a VectorEnv, a batch of environments"),
    ],
)
def test_classes_of_another_api_are_named_with_what_to_write(name, message):
    with pytest.raises(ValueError, match=message) as caught:
        envs.make(name)
    assert "\n" not in str(caught.value)
