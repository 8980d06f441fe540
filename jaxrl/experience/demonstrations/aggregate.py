"""The memory of DAgger: the last steps of every environment with the actions that were right there."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.demonstrations import AggregateDraw, AggregatePlan, Demonstrated
from jaxrl.algorithms.replay import SequencePlan
from jaxrl.experience.memory import Memory
from jaxrl.experience.replay import draws, ring
from jaxrl.experience.replay.places import Places
from jaxrl.types import Array, Bulk, PyTree, Sharded, Trajectory


@flax.struct.dataclass
class AggregateState:
    """The rows of this device's environments in the order in which they were collected.

    Attributes:
      rows: [rows, B, ...], each in its own dtype; `action` is the right one.
      carry: tree of [rows / L, B, ...], before the first row of each sequence.
      cursor: int32[], the row that is written next.
      count: int32[], rows of each environment that hold something.
    """

    rows: Annotated[Demonstrated, Sharded(1), Bulk()]
    carry: Annotated[PyTree, Sharded(1), Bulk()]
    cursor: Array
    count: Array


@dataclass(frozen=True)
class Aggregate(Memory):
    """Grows by each rollout up to a fixed size, then forgets the oldest; samples sequences uniformly."""

    plan: AggregatePlan

    state_type: Any = AggregateState

    @property
    def checkpointed(self) -> bool:  # type: ignore[override]
        return self.plan.draws.checkpointed

    @property
    def _sequences(self) -> SequencePlan:
        assert self.plan.draws.sequences is not None
        return self.plan.draws.sequences

    def init(self, example: Trajectory | None) -> AggregateState:
        assert example is not None
        size = self.plan.draws.rows
        rows = ring.empty_rows(size, jax.eval_shape(self._label, example))
        carries = ring.empty_rows(size // self._sequences.interval, example.carry[self.plan.carry])
        zero = jnp.zeros((), jnp.int32)
        return AggregateState(rows, carries, zero, zero)

    def add(self, state: AggregateState, trajectory: Trajectory) -> AggregateState:
        size = self.plan.draws.rows
        length = len(trajectory.reward)
        carry = trajectory.carry[self.plan.carry]
        return dataclasses.replace(
            state,
            rows=ring.put_rows(state.rows, self._label(trajectory), state.cursor, size),
            carry=ring.put_rows(state.carry, carry, state.cursor, size),
            cursor=(state.cursor + length) % size,
            count=jnp.minimum(state.count + length, size),
        )

    def draw(self, state: AggregateState, latest: Trajectory | None, key: Array) -> AggregateDraw:
        assert latest is not None
        sequences = self._sequences
        places = self._places(state)
        env, item, probability = draws.draw(self.plan.draws, places, None, key)
        window = item[None] * sequences.interval + jnp.arange(sequences.burn_in + sequences.length)[:, None]
        rows = ring.take_rows(state.rows, window, env)
        ready = places.suffice(state.count, self.plan.draws.learning_starts)
        return AggregateDraw(
            obs=rows.obs,
            reset=rows.reset,
            action_mask=rows.action_mask,
            carry=ring.take_rows(state.carry, item, env),
            label=rows.action[sequences.burn_in :],
            usable=rows.valid[sequences.burn_in :] & (probability > 0)[None] & ready,
            ready=ready,
            latest=latest,
        )

    def feedback(self, state: AggregateState, feedback: PyTree) -> AggregateState:
        return state

    def _label(self, trajectory: Trajectory) -> Demonstrated:
        valid = jnp.ones_like(trajectory.reset) if trajectory.valid is None else trajectory.valid
        return Demonstrated(
            obs=trajectory.obs,
            reset=trajectory.reset,
            action=trajectory.extras[self.plan.label],
            action_mask=trajectory.action_mask,
            valid=valid,
        )

    def _places(self, state: AggregateState) -> Places:
        """The sequences whose rows are all there; none crosses the seam from the newest to the oldest."""
        size = self.plan.draws.rows
        interval = self._sequences.interval
        rows = self._sequences.burn_in + self._sequences.length
        complete = jnp.maximum((state.count - rows) // interval + 1, 0)
        oldest = jnp.where(state.count == size, state.cursor, 0)
        return Places(state.rows.reset.shape[1], size // interval, oldest // interval, complete)
