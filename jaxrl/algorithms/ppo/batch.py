"""What PPO's loss reads of a trajectory, and how minibatches are taken from it."""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp

from jaxrl.algorithms.sequences import take_carries, take_sequences
from jaxrl.types import Array, PyTree, Trajectory


@flax.struct.dataclass
class Batch:
    """What the loss reads of a trajectory; leaves [T, B, ...], in a minibatch [L, N, ...].

    `carry`, the one before each sequence, has leaves [T / L, B, ...], in a minibatch [N, ...].
    """

    obs: PyTree
    reset: Array
    action: Array
    action_mask: Array | None
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    valid: Array | None
    carry: PyTree

    @classmethod
    def of(cls, trajectory: Trajectory, seen: PyTree, advantage: Array, target: Array) -> Batch:
        """A whole trajectory, with its observations as the network saw them; float32[T, B] arrays."""
        batch = cls(
            obs=seen,
            reset=trajectory.reset,
            action=trajectory.action,
            action_mask=trajectory.action_mask,
            log_prob=trajectory.log_prob,
            value=trajectory.value,
            advantage=advantage,
            target=target,
            valid=trajectory.valid,
            carry=trajectory.carry,
        )
        if batch.valid is None:
            return batch
        # Rows that do not count may hold anything, and the gradient of `where` lets a NaN pass.
        names = ("log_prob", "value", "advantage", "target")
        return dataclasses.replace(
            batch, **{n: jnp.where(batch.valid, getattr(batch, n), 0.0) for n in names}
        )

    def take(self, environment_CG: Array, length: int, first_chunk: Array | int = 0) -> Batch:
        """The sequences of these environments, by chunk; see `sequences.take_sequences`."""
        steps = dataclasses.replace(self, carry=None)
        taken: Batch = take_sequences(steps, environment_CG, length, first_chunk)
        return dataclasses.replace(taken, carry=take_carries(self.carry, environment_CG, first_chunk))
