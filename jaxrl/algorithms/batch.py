"""The part of a trajectory that a loss reads, and how minibatches are taken from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import flax.struct
import jax.numpy as jnp

from jaxrl.algorithms.sequences import Sequences, take_carries, take_sequences
from jaxrl.config import ConfigError
from jaxrl.types import Array, PyTree, Trajectory


@flax.struct.dataclass
class Batch:
    """Leaves [T, B, ...], in a minibatch [L, N, ...].

    Attributes:
      obs: as the network sees them.
      reset, action, action_mask, valid: as in a `Trajectory`.
      carry: the one before each sequence, [T / L, B, ...], in a minibatch [N, ...].
      weight: as in a `Trajectory`.
      rows: by name, float32[T, B] arrays of the algorithm: advantages, targets, extras of the trajectory.
    """

    obs: PyTree
    reset: Array
    action: Array
    action_mask: Array | None
    valid: Array | None
    carry: PyTree
    rows: dict[str, Array]
    weight: Array | None = None

    @classmethod
    def of(cls, trajectory: Trajectory, seen: PyTree, rows: Mapping[str, Array]) -> Batch:
        """A whole trajectory, with its observations as the network saw them."""
        valid = trajectory.valid
        # Rows that do not count may hold anything, and the gradient of `where` lets a NaN pass.
        clean = {name: x if valid is None else jnp.where(valid, x, 0.0) for name, x in rows.items()}
        return cls(
            obs=seen,
            reset=trajectory.reset,
            action=trajectory.action,
            action_mask=trajectory.action_mask,
            valid=valid,
            carry=trajectory.carry,
            rows=clean,
            weight=trajectory.weight,
        )

    def take(self, sequences: Sequences, length: int) -> Batch:
        """The steps of these sequences; see `sequences.take_sequences`."""
        steps = dataclasses.replace(self, carry=None)
        taken: Batch = take_sequences(steps, sequences, length)
        return dataclasses.replace(taken, carry=take_carries(self.carry, sequences))

    def total(self, x: Array) -> Array:
        """float32[], the sum over the steps that count of x [L, N], by their weights if they have some.

        Raises:
          ConfigError: x is not one number for each step. A mean would be divided by the steps once more.
        """
        if jnp.shape(x) != self.reset.shape:
            raise ConfigError(
                f"a loss or a metric has the shape {list(jnp.shape(x))}; it must have one number for each "
                f"step and sequence of a minibatch, {list(self.reset.shape)}, which are averaged afterwards"
            )
        if self.weight is not None:
            x = x * self.weight
        return x.sum() if self.valid is None else jnp.where(self.valid, x, 0.0).sum()
