"""Environments with goals: BitFlip's rules, and rewards and terminations as functions of goals."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec
from jaxrl.envs.goals import NearGoals
from tests.envs.native import conformance


def test_bit_flip_beside_a_loop() -> None:
    env = envs.make("jaxrl:BitFlip(bits=4)")
    reset, step, key = jax.jit(env.reset), jax.jit(env.step), jax.random.key(0)
    seen = []
    for i in range(40):
        state, obs = reset(jax.random.key(i))
        bits, goal = np.array(obs["observation"]), np.array(obs["desired_goal"])
        np.testing.assert_array_equal(obs["achieved_goal"], bits)
        seen.append(np.concatenate([bits, goal]))
        wrong = [*np.flatnonzero(bits != goal), 0]
        for t, action in enumerate((wrong * 4)[:4]):
            bits[action] = 1 - bits[action]
            state, timestep = step(key, state, jnp.int32(action))
            reached = bool((bits == goal).all())
            np.testing.assert_array_equal(timestep.obs["achieved_goal"], bits)
            np.testing.assert_array_equal(timestep.obs["desired_goal"], goal)
            assert float(timestep.reward) == (1.0 if reached else -1.0)
            assert (bool(timestep.terminated), bool(timestep.info["success"])) == (reached, reached)
            assert bool(timestep.truncated) == (t == 3)
            if reached:
                break
        assert reached or len(wrong) == 1  # at the goal from the start, it is left and not reached again
    assert set(np.unique(seen)) == {0.0, 1.0}
    # 320 fair bits.
    assert abs(np.mean(seen) - 0.5) < 4 * 0.5 / 320**0.5


def test_goals_of_any_number() -> None:
    goals = NearGoals(radius=0.5, reached=0.0, missed=-2.0)
    achieved, desired = jnp.zeros((3, 1, 2)), jnp.array([[0.5, 0.0], [0.0, 0.49]])
    reward = goals.compute_reward(achieved, desired)
    assert reward.dtype == jnp.float32
    assert reward.tolist() == [[-2.0, 0.0]] * 3
    assert goals.compute_terminated(achieved, desired).tolist() == [[False, True]] * 3
    unsigned = jnp.array([0, 1], jnp.uint8)
    assert not NearGoals().compute_terminated(unsigned, unsigned[::-1])


@pytest.mark.slow
@pytest.mark.parametrize("control", ["discrete", "continuous"])
def test_rewards_and_terminations_of_steps_are_those_of_goals(control: str) -> None:
    env = envs.make(f"jaxrl:Navigation(goal_conditioned=True, control='{control}', goal_distance=1.0)")
    goals = env.spec.goals
    assert goals is not None
    state, _ = env.reset(jax.random.key(0))
    action = jnp.int32(1) if control == "discrete" else jnp.array([1.0, 0.0])
    _, timestep = env.step(jax.random.key(1), state, action)
    both = timestep.obs["achieved_goal"], timestep.obs["desired_goal"]
    assert timestep.reward == goals.compute_reward(*both)
    assert timestep.terminated == goals.compute_terminated(*both)
    assert goals.compute_terminated(jnp.zeros((5, 2)), jnp.zeros((5, 2))).tolist() == [False] * 5


@pytest.mark.parametrize(
    ("name", "wrappers"),
    [
        ("jaxrl:Navigation", ()),
        ("jaxrl:Navigation(goal_conditioned=True, reward='progress')", ()),
        ("jaxrl:BitFlip", ("reward_scale(factor=2.0)",)),
        ("jaxrl:BitFlip", ("action_repeat(times=2)",)),
    ],
)
def test_rewards_that_do_not_follow_from_goals(name: str, wrappers: tuple[str, ...]) -> None:
    assert envs.make(name, wrappers).spec.goals is None


def test_other_wrappers_leave_goals() -> None:
    wrapped = envs.make("jaxrl:BitFlip", ("time_limit(steps=3)", "sticky_actions(probability=0.1)"))
    assert wrapped.spec.goals == NearGoals()


@pytest.mark.slow
def test_bit_flip_in_batches() -> None:
    assert conformance.check("jaxrl:BitFlip(bits=3)", length=24)["truncated"].any()


@pytest.mark.parametrize("bits", [0, 2.5, 5000])
def test_bad_bits(bits: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"jaxrl:BitFlip: bits (={bits}) must be")) as error:
        envs.make(f"jaxrl:BitFlip(bits={bits})")
    assert "\n" not in str(error.value)


def test_observations_that_have_no_goals() -> None:
    spec = EnvSpec("some", Box.of(0.0, 1.0, (2,)), Discrete(2))
    with pytest.raises(ValueError, match="needs observations that are a Dict of achieved_goal, desired_goal"):
        dataclasses.replace(spec, goals=NearGoals())
    parts = {"achieved_goal": 2, "desired_goal": 3, "observation": 2}
    space = Dict(tuple((name, Box.of(0.0, 1.0, (size,))) for name, size in parts.items()))
    with pytest.raises(ValueError, match="must be a Box of the same shape and dtype"):
        dataclasses.replace(spec, observation_space=space, goals=NearGoals())


def test_goals_that_end_no_episode() -> None:
    places = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    goal = jnp.zeros((2, 2))
    for terminates in (True, False):
        goals = NearGoals(radius=5.0, terminates=terminates)  # 5 away is not within
        assert goals.compute_reward(places, goal).tolist() == [1.0, -1.0]
        assert goals.compute_terminated(places, goal).tolist() == [terminates, False]
