"""Spaces of Gymnasium, actions and rewards, as worker processes read them; gymnasium is the oracle."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from jaxrl.envs.base import Box, Dict, Discrete
from jaxrl.envs.host.answers import checked_reward
from jaxrl.envs.host.spaces import action_leaf, action_space, observation_space, select_leaves
from jaxrl.envs.host.worker import Problem, action_of, describe

PUSH = spaces.Box(-1, 1, (2,), np.float32)
NOTHING = spaces.Box(-1, 1, (0,), np.float32)


def observed(space: spaces.Space[Any]) -> Any:
    return observation_space(select_leaves("here", describe(space), ()))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=5),
        spaces.Box(-1, 1, (), np.float32),
        spaces.Dict({1: spaces.Discrete(2), 2: PUSH}),
        spaces.Dict({"none": spaces.Dict({}), "push": PUSH, "zero": NOTHING}),
        spaces.Tuple((spaces.Tuple(()), spaces.Dict({"a": spaces.Discrete(4, start=-2)}), PUSH)),
    ],
    ids=str,
)
def test_actions_are_elements_of_the_space(space: spaces.Space[Any]) -> None:
    leaf = action_leaf(describe(space))
    chosen = action_space(leaf)
    action = action_of(leaf, np.ones(chosen.shape, chosen.dtype))
    assert space.contains(action)
    if isinstance(space, spaces.Discrete):
        assert action.item() == 6  # as those that `sample` draws: numbers of numpy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low", ["min", "tiny"])  # C++ calls the smallest positive number min()
def test_the_limits_of_floats_are_no_bounds(low: str, dtype: Any) -> None:
    limits = np.finfo(dtype)
    space = spaces.Box(getattr(limits, low), limits.max, (2,), dtype)
    assert action_space(action_leaf(describe(space))) == Box.of(-np.inf, np.inf, (2,))


def test_bounds_of_float64_are_reached_within_the_space() -> None:
    # float32(0.1) is above 0.1: environments that assert `action_space.contains(action)` ended the run.
    box = spaces.Box(
        np.array([-0.1, 0.7, 0.1, -1e-320]), np.array([0.1, 1e3 / 3, 0.1, 2.0]), dtype=np.float64
    )
    for space in (box, spaces.Dict({"push": box, "turn": spaces.Discrete(2)})):
        leaf = action_leaf(describe(space))
        chosen = action_space(leaf)
        bounds = chosen if isinstance(chosen, Box) else dict(chosen.spaces)["push"]  # type: ignore[union-attr]
        for ends in (bounds.low, bounds.high):
            action = np.zeros(chosen.shape, np.float32)
            action[: len(ends)] = ends
            taken = action_of(leaf, action)
            taken = taken if isinstance(chosen, Box) else taken["push"]
            assert np.delete((taken >= box.low) & (taken <= box.high), 2).all()
            np.testing.assert_allclose(taken, action[: len(ends)], rtol=0)


def test_parts_with_nothing_in_them_are_left_out() -> None:
    space = spaces.Dict({"none": spaces.Dict({}), "push": PUSH, "zero": NOTHING, "pair": spaces.Tuple(())})
    assert observed(space) == Dict((("push", Box.of(-1, 1, (2,))),))
    action = action_space(action_leaf(describe(spaces.Tuple((spaces.Dict({}), spaces.Discrete(2))))))
    assert action.spaces == (("1", Discrete(2)),)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"a.b": PUSH, "a": spaces.Dict({"b": PUSH})}), "two parts called 'a.b'; rename one"),
        (spaces.Dict({1: PUSH, "1": NOTHING, "2": PUSH, 2: spaces.Discrete(2)}), "two parts called '2'"),
        (spaces.Dict({}), "a dict without parts"),
        (spaces.Tuple(()), "a tuple without parts"),
        (spaces.Dict({"a": spaces.Dict({}), "b": NOTHING}), "must have parts"),
        (NOTHING, r"Box.shape \(=\(0,\)\) must have positive sizes"),
    ],
    ids=str,
)
def test_parts_that_cannot_be_told_apart_and_spaces_without_any(
    space: spaces.Space[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        observed(space)
    with pytest.raises(ValueError, match=message):
        action_space(action_leaf(describe(space)))


@pytest.mark.parametrize("reward", [None, "all", 1j, {}])
def test_a_reward_that_is_no_number_is_named(reward: Any) -> None:
    with pytest.raises(Problem, match="returned the reward .*, which is no number"):
        checked_reward(reward)


@pytest.mark.parametrize("reward", [2, 2.0, np.float16(2), np.int64(2), np.array(2.0), Decimal(2), True + 1])
def test_a_reward_is_any_number(reward: Any) -> None:
    assert checked_reward(reward) == 2
