"""Environments with goals: rewards and terminations as functions of the goal, so that goals can be exchanged.

Observations are dicts of `observation`, `achieved_goal` and `desired_goal`, as in Gymnasium-Robotics. An
environment declares its goals in `EnvSpec.goals`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import modules
from jaxrl.envs.spaces import Box, Dict, Space

ACHIEVED = "achieved_goal"
DESIRED = "desired_goal"
OBSERVATION = "observation"
KEYS = (ACHIEVED, DESIRED, OBSERVATION)


class Goals(Protocol):
    """The reward of a step and whether it ends the episode, by the goal alone; pure, for arrays [..., G].

    `achieved` is the `achieved_goal` after the step. An environment that declares these
    functions returns their rewards and terminations in its own steps.
    """

    def compute_reward(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        """float32[...], the reward of a step."""
        ...

    def compute_terminated(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        """bool[...], whether a step reaches a terminal state."""
        ...


@dataclass(frozen=True)
class NearGoals:
    """A goal is reached at a Euclidean distance below `radius`; the episode ends there if it `terminates`.

    `reached` and `missed` are the rewards of steps that reach it, and of others.
    """

    radius: float = 0.5
    reached: float = 1.0
    missed: float = -1.0
    terminates: bool = True

    def compute_reward(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        near = goal_distance(achieved, desired) < self.radius
        return jnp.where(near, self.reached, self.missed).astype(jnp.float32)

    def compute_terminated(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        return (goal_distance(achieved, desired) < self.radius) & self.terminates


@dataclass(frozen=True)
class RewardOfGoals:
    """A reward by a function of `achieved` and `desired`; no goal ends an episode."""

    compute_reward: Callable[[jax.Array, jax.Array], jax.Array]

    def compute_terminated(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        return jnp.zeros(achieved.shape[:-1], bool)


@dataclass(frozen=True, eq=False)
class GoalExamples:
    """The rewards and terminations that an environment has given, by which `Goals` are checked."""

    achieved: np.ndarray  # float32[M, G], after steps, and of pairs that `compute_reward` was called with
    desired: np.ndarray  # the same
    reward: np.ndarray  # float32[M]
    terminated: np.ndarray  # float32[M], 1 or 0; NaN if that is not known


def goals_of(found: Any) -> Goals:
    """The goals that a user names: a function of (achieved, desired), or an object or a class of `Goals`."""
    if isinstance(found, type):
        found = found()
    if hasattr(found, "compute_reward") and hasattr(found, "compute_terminated"):
        return found
    if not callable(found):
        raise ValueError(
            f"{type(found).__name__} is no function of (achieved, desired) and has no `compute_reward` and "
            "`compute_terminated`"
        )
    return RewardOfGoals(found)


def check_goals(goals: Goals, examples: GoalExamples) -> None:
    """Raises ValueError, one line, if goals differ from what the environment returned."""
    pair = jnp.asarray(examples.achieved), jnp.asarray(examples.desired)
    count = examples.reward.shape
    try:
        said = goals.compute_reward(*pair), goals.compute_terminated(*pair)
    except Exception as error:
        raise ValueError(f"raised {modules.one_line(error)}") from error
    given = (examples.reward, examples.terminated)
    for what, mine, theirs in zip(("reward", "termination"), said, given, strict=True):
        found = np.asarray(mine)
        if found.shape != count:
            raise ValueError(f"gives a {what} of shape {found.shape} for goals {examples.achieved.shape}")
        same = np.isclose(found.astype(np.float32), theirs, rtol=1e-4, atol=1e-4) | np.isnan(theirs)
        wrong = np.flatnonzero(~same)
        if len(wrong):
            i = wrong[0]
            both = examples.achieved[i], examples.desired[i]
            places = " and ".join(np.array2string(x, precision=3) for x in both)
            raise ValueError(
                f"gives the {what} {float(found[i]):g} for the goals {places}, achieved and desired, but "
                f"the environment gives {float(theirs[i]):g}"
            )


def goal_distance(a: jax.Array, b: jax.Array) -> jax.Array:
    """float32[...], the Euclidean distance of goals [..., G] of any numeric dtype."""
    difference = a.astype(jnp.float32) - b.astype(jnp.float32)
    return jnp.sqrt((difference**2).sum(axis=-1))


def check_goal_space(label: str, space: Space) -> None:
    """Raises ValueError, one line, unless observations of the space have goals that can be exchanged."""
    parts = dict(space.spaces) if isinstance(space, Dict) else {}
    if sorted(parts) != sorted(KEYS):
        raise ValueError(f"{label} needs observations that are a Dict of {', '.join(KEYS)}, not {space}")
    shapes = {(x.shape, x.dtype) for x in (parts[ACHIEVED], parts[DESIRED]) if isinstance(x, Box)}
    are_boxes = all(isinstance(parts[key], Box) for key in (ACHIEVED, DESIRED))
    if len(shapes) != 1 or not are_boxes:
        raise ValueError(f"{label}: `{ACHIEVED}` and `{DESIRED}` must be a Box of the same shape and dtype")
