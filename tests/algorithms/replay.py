"""A uniform replay memory: a ring over time for each environment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.experience.memory import Memory
from jaxrl.types import Array, Axis, Bulk, PyTree, Sharded, Trajectory


@flax.struct.dataclass
class Ring:
    """The last rows of every environment.

    Attributes:
      rows: by field of a trajectory, [capacity, B, ...].
      carry: before each chunk of L rows, [capacity / L, B, ...].
      cursor: int32[], the row that is written next.
      count: int32[], rows that hold something.
      draws: int32[], how often learning has told of a draw.
      error: float32[], the sum of what it told.
    """

    rows: Annotated[dict[str, PyTree], Sharded(1), Bulk()]
    carry: Annotated[PyTree, Sharded(1), Bulk()]
    cursor: Array
    count: Array
    draws: Array
    error: Array


@flax.struct.dataclass
class Sample:
    """Sequences [L + 1, N, ...] of consecutive rows; the last row is only a successor.

    Attributes:
      rows: as in `Ring`.
      carry: [N, ...], before the first row.
      usable: bool[L, N], whether a row and the one after it are a transition.
      latest_reward, latest_value: float32[T, B], of the rollout just collected: a NaN in it must be found in
        its iteration, and its rows may not be drawn for long.
    """

    rows: dict[str, PyTree]
    carry: PyTree
    usable: Array
    latest_reward: Array
    latest_value: Array


FIELDS = ("obs", "reset", "action", "action_mask", "reward", "terminated", "valid", "extras")


@dataclass(frozen=True)
class UniformReplay(Memory):
    """Draws chunks with equal probability, the same number from each environment, by the environment's key.

    So the rows drawn do not depend on the number of devices.

    Attributes:
      capacity: rows of each environment; a multiple of the rollout's.
      length: L, rows of a chunk.
      drawn: chunks of each environment in a draw.
      axis: this device.
    """

    capacity: int
    length: int
    drawn: int
    axis: Axis

    state_type: Any = Ring

    def init(self, example: Trajectory) -> Ring:
        def empty(rows: int, tree: PyTree) -> PyTree:
            return jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), tree)

        zero = jnp.zeros((), jnp.int32)
        rows = {name: empty(self.capacity, getattr(example, name)) for name in FIELDS}
        carry = empty(self.capacity // self.length, example.carry)
        return Ring(rows, carry, zero, zero, zero, jnp.zeros((), jnp.float32))

    def add(self, state: Ring, trajectory: Trajectory) -> Ring:
        def write(ring: PyTree, new: PyTree, at: Array) -> PyTree:
            put = jax.lax.dynamic_update_slice_in_dim
            return jax.tree.map(lambda x, y: put(x, y.astype(x.dtype), at, axis=0), ring, new)

        length = len(trajectory.reward)
        return dataclasses.replace(
            state,
            rows=write(state.rows, {name: getattr(trajectory, name) for name in FIELDS}, state.cursor),
            carry=write(state.carry, trajectory.carry, state.cursor // self.length),
            cursor=(state.cursor + length) % self.capacity,
            count=jnp.minimum(state.count + length, self.capacity),
        )

    def draw(self, state: Ring, latest: Trajectory, key: Array) -> Sample:
        envs = latest.reward.shape[1]
        index_B = self.axis.index() * envs + jnp.arange(envs)
        chunks = self.capacity // self.length
        # The newest chunk has no successor yet.
        known = jnp.maximum(state.count // self.length - 1, 1)
        oldest = jnp.where(state.count == self.capacity, state.cursor, 0) // self.length

        def chunk_of(index: Array) -> Array:
            return jax.random.randint(jax.random.fold_in(key, index), (self.drawn,), 0, known)

        chunk_NB = (oldest + jax.vmap(chunk_of, out_axes=1)(index_B)) % chunks
        offset = jnp.arange(self.length + 1)[:, None, None]
        row_LNB = (chunk_NB[None] * self.length + offset) % self.capacity

        def take(x: Array, rows: Array, lead: tuple[int, ...]) -> Array:
            env = jnp.broadcast_to(jnp.arange(envs), rows.shape)
            return x.at[rows, env].get(mode="promise_in_bounds").reshape(*lead, -1, *x.shape[2:])

        rows = jax.tree.map(lambda x: take(x, row_LNB, (self.length + 1,)), state.rows)
        # Where the environment of a row was started again the row after it is no successor.
        follows = rows["terminated"][:-1] | ~rows["reset"][1:]
        return Sample(
            rows=rows,
            carry=jax.tree.map(lambda x: take(x, chunk_NB, ()), state.carry),
            usable=rows["valid"][:-1] & follows,
            latest_reward=latest.reward,
            latest_value=latest.extras["value"],
        )

    def feedback(self, state: Ring, feedback: Array) -> Ring:
        return dataclasses.replace(state, draws=state.draws + 1, error=state.error + feedback)
