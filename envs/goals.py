"""Environments with goals: rewards and terminations as functions of the goal, so that goals can be exchanged.

Observations are dicts of `observation`, `achieved_goal` and `desired_goal`, as in Gymnasium-Robotics. What an
environment says of its goals is `EnvSpec.goals`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxrl.envs.spaces import Box, Dict, Space

ACHIEVED, DESIRED, OBSERVATION = "achieved_goal", "desired_goal", "observation"
KEYS = (ACHIEVED, DESIRED, OBSERVATION)


class Goals(Protocol):
    """The reward of a step and whether it ends the episode, by the goal alone; pure, for arrays [..., G].

    `achieved` is the `achieved_goal` after the step. An environment that says this of itself gives the
    rewards and terminations of these functions in its own steps.
    """

    def compute_reward(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        """float32[...], the reward of a step."""
        ...

    def compute_terminated(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        """bool[...], whether a step reaches a terminal state."""
        ...


@dataclass(frozen=True)
class NearGoals:
    """A goal is reached at a Euclidean distance below `radius`; the episode terminates there.

    Attributes:
      radius: of a goal.
      reached, missed: the rewards of steps that reach it, and of others.
    """

    radius: float = 0.5
    reached: float = 1.0
    missed: float = -1.0

    def compute_reward(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        return jnp.where(self.compute_terminated(achieved, desired), self.reached, self.missed).astype(
            jnp.float32
        )

    def compute_terminated(self, achieved: jax.Array, desired: jax.Array) -> jax.Array:
        return goal_distance(achieved, desired) < self.radius


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
