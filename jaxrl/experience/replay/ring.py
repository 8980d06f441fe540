"""The ring: the last rows of every environment, each stored once."""

from __future__ import annotations

from typing import Annotated

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.experience.replay import priority_tree
from jaxrl.experience.replay.priority_tree import PriorityTree
from jaxrl.types import Array, Bulk, PyTree, Sharded, Trajectory

# Of a trajectory; final observations are separate rows that are not `valid`.
FIELDS = ("obs", "reset", "action", "action_mask", "reward", "terminated", "valid")
# Beside them, for hindsight: the number of the row's episode, which rises from one to the next.
EPISODE = "episode"
# Beside them, for sequences: the carries, [rows / interval, B, ...].
CARRY = "carry"
# Beside them, if only the newest frame of stacked observations is kept. An observation of K frames has them
# along its last axis, the oldest first (`EnvSpec.stacked_frames`): the newest of its own row and of the K - 1
# rows before. At the start of an episode a stack either repeats its frame or continues from the row before,
# the final observation of the last episode; this flag of the row says which (`begins_anew`).
ANEW = "anew"


@flax.struct.dataclass
class Ring:
    """The last rows of every environment, in the order in which they were collected, and where they end.

    Row t + 1 of an environment is what followed its row t, also across the end of the arrays. The last
    observation of an episode is a row that is not `valid`: it has no action. The oldest row is `cursor`,
    once the ring is full, and 0 before.

    Attributes:
      rows: by field of a trajectory (`FIELDS`), [rows, B, ...], each in its own dtype; with `EPISODE`,
        int32[rows, B], if episodes are numbered, and with `CARRY`, if carries are stored. Of stacks `obs` is
        the newest frame, and `ANEW`, bool[rows, B], says where they begin.
      tree: leaves of the rows, 0 where no transition begins. None without priorities. With carries: of the
        rows / interval sequences that begin there.
      cursor: int32[], the row that is written next.
      count: int32[], rows of each environment that hold something.
      draws: int32[], how often rows were sampled and learnt from.
    """

    rows: Annotated[dict[str, PyTree], Sharded(1), Bulk()]
    tree: Annotated[PriorityTree | None, Sharded(0)]
    cursor: Array
    count: Array
    draws: Array

    @property
    def size(self) -> int:
        """Rows of each environment that it can hold."""
        return len(self.rows["reward"])

    @property
    def oldest(self) -> Array:
        """int32[], where the oldest row lies."""
        return jnp.where(self.count == self.size, self.cursor, 0)


def empty(example: Trajectory, plan: ReplayPlan) -> Ring:
    """A ring that holds nothing, for rollouts with the shapes of `example`."""
    fields = {name: getattr(example, name) for name in FIELDS}
    if plan.hindsight is not None:
        fields[EPISODE] = jnp.zeros(example.reward.shape, jnp.int32)
    if plan.frames > 1:
        frame = jax.eval_shape(lambda obs: newest(obs, plan.frames), example.obs)
        fields |= {"obs": frame, ANEW: jnp.zeros(example.reward.shape, bool)}
    rows = empty_rows(plan.rows, fields)
    items = plan.rows
    if plan.sequences is not None:
        items //= plan.sequences.interval
        rows[CARRY] = empty_rows(items, example.carry)
    return Ring(
        rows=rows,
        tree=None if plan.priorities is None else priority_tree.empty(example.reward.shape[1], items),
        # An array for each: one that stands in two places cannot be donated.
        cursor=jnp.zeros((), jnp.int32),
        count=jnp.zeros((), jnp.int32),
        draws=jnp.zeros((), jnp.int32),
    )


def empty_rows(count: int, example: PyTree) -> PyTree:
    """Zeros [count, ...] for a tree of [T, ...]."""
    return jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), example)


def put_rows(rows: PyTree, new: PyTree, at: Array, size: int) -> PyTree:
    """Rows with new ones from row `at` on; their number divides the number of all rows.

    Args:
      rows: tree of [size, ...], or of [size / k, ...] where only each k-th row has something.
      new: such a tree of the rows that are written.
      size: of the ring.
    """

    def put(x: Array, y: Array) -> Array:
        first = at // (size // len(x))
        return jax.lax.dynamic_update_slice_in_dim(x, y.astype(x.dtype), first, axis=0)

    return jax.tree.map(put, rows, new)


def write_rows(rows: dict[str, PyTree], trajectory: Trajectory, at: Array) -> PyTree:
    """`Ring.rows` with a rollout from row `at` on; its length divides the ring's."""
    size = len(rows["reward"])
    new = {name: getattr(trajectory, name) for name in FIELDS}
    if EPISODE in rows:
        before = rows[EPISODE][(at - 1) % size]
        new[EPISODE] = before[None] + jnp.cumsum(trajectory.reset, axis=0, dtype=jnp.int32)
    if CARRY in rows:
        new[CARRY] = trajectory.carry
    if ANEW in rows:
        count = trajectory.obs.shape[-1] // rows["obs"].shape[-1]
        new[ANEW] = begins_anew(trajectory.obs, trajectory.reset, count)
        new["obs"] = newest(trajectory.obs, count)
    return put_rows(rows, new, at, size)


def observations_of(rows: dict[str, PyTree], row: Array, env: Array, num_frames: int) -> PyTree:
    """The observations [..., N, *] of `Ring.rows`, as the agent saw them; `row`, `env` as for `take_rows`."""
    if num_frames == 1:
        return take_rows(rows["obs"], row, env)
    return stack_frames(rows["obs"], rows[ANEW], row, env, num_frames)


def _wrap(item: Array, size: int) -> Array:
    """uint32[...], where items of a ring lie that may be up to its size before its start, or beyond its end.

    Without a sign: XLA for CPU would correct the remainder, and then the index, anew for every number that is
    taken from a row.
    """
    return jax.lax.rem((item + size).astype(jnp.uint32), jnp.full(item.shape, size, jnp.uint32))


def take_rows(tree: PyTree, row: Array, env: Array) -> PyTree:
    """Rows [..., N, *] of a tree of [rows, B, *]: `row` int32[..., N], cyclic, of `env` int32[N]."""
    env = jnp.broadcast_to(env, row.shape).astype(jnp.uint32)

    def of(x: Array) -> Array:
        # By one index: XLA for CPU puts pairs of them together in a separate kernel.
        at = _wrap(row, len(x)) * jnp.uint32(x.shape[1]) + env
        return x.reshape(-1, *x.shape[2:]).at[at].get(mode="promise_in_bounds")

    return jax.tree.map(of, tree)


def newest(obs: Array, frames: int) -> Array:
    """[..., C], the newest frame of observations [..., K * C]."""
    return obs[..., -(obs.shape[-1] // frames) :]


def begins_anew(obs: Array, reset: Array, frames: int) -> Array:
    """bool[T, B], True if a stack repeats its newest frame because an episode begins.

    The observations are [T, B, *, K * C], and `reset` is bool[T, B].
    """
    repeated = jnp.concatenate([newest(obs, frames)] * frames, axis=-1)
    return reset & (obs == repeated).all(axis=tuple(range(2, obs.ndim)))


def stack_frames(frame: Array, anew: Array, row: Array, env: Array, frames: int) -> Array:
    """[..., N, *, K * C], the observations of rows of a ring.

    Args:
      frame: [rows, B, *, C], the newest frame of each row.
      anew: bool[rows, B], `begins_anew` of each row.
      row, env: as for `take_rows`; the K - 1 rows before each are there.
    """
    env = jnp.broadcast_to(env, row.shape).astype(jnp.uint32)
    size = len(frame)
    # Rows that each looks back, at most to where its stack began.
    reach = jnp.zeros_like(row)
    begun = jnp.zeros(row.shape, bool)
    parts = []
    for back in range(frames):
        reach = jnp.where(begun, reach, back)
        at = _wrap(row - reach, size), env
        parts.append(frame.at[at].get(mode="promise_in_bounds"))
        begun |= anew.at[at].get(mode="promise_in_bounds")
    return jnp.concatenate(parts[::-1], axis=-1)
