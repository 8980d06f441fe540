"""From a trajectory to minibatches of sequences.

A trajectory [T, B] is cut into chunks of L steps, contiguous in time; one sequence is one chunk of one
environment. Time steps inside a sequence are never shuffled.

The shuffle is stratified: sequences are taken in groups of M neighbours (M minibatches), and every group
deals its M members out, one to each minibatch, starting at a random member. A group is one chunk of M
environments; where M does not divide the environments, it is several chunks in a row of fewer environments.
Every sequence is used once per epoch and lands in any minibatch with equal probability; no sort is needed;
and since groups never straddle devices, N devices form the very minibatches that one device forms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.algorithms.agent import Agent
from jaxrl.config import ConfigError
from jaxrl.envs.base import is_large_image
from jaxrl.types import Array, Axis, PyTree, Trajectory


@flax.struct.dataclass
class Sequences:
    """Sequences of a trajectory, as a grid of C rows and G columns; N = C * G, row by row.

    Attributes:
      environment: int32[..., C, G], on this device.
      chunk: int32[..., C, G]; None: the sequences of row c are of chunk `first_chunk + c`.
      first_chunk: int32[...]; None is 0.
    """

    environment: Array
    chunk: Array | None = None
    first_chunk: Array | None = None

    @property
    def chunks(self) -> Array:
        """int32[C, G] or [C, 1], the chunk of each."""
        if self.chunk is not None:
            return self.chunk
        row_C = jnp.arange(self.environment.shape[0])
        return (row_C if self.first_chunk is None else self.first_chunk + row_C)[:, None]


@dataclass(frozen=True)
class Dealing:
    """The order in which sequences are dealt out to minibatches.

    Attributes:
      num_chunks: T / L.
      num_envs: environments of ALL devices.
      group_envs: neighbouring environments of a group; divides the environments of each device.
      group_chunks: chunks in a row of a group; divides `num_chunks`.
    """

    num_chunks: int
    num_envs: int
    group_envs: int
    group_chunks: int = 1

    @property
    def num_minibatches(self) -> int:
        """M, the members of a group."""
        return self.group_envs * self.group_chunks

    def deal(self, key: Array, first_group: Array | int, groups: int) -> Sequences:
        """The sequences of an epoch's minibatches, with leading dimension M.

        Args:
          key: one key for all devices; the epoch's.
          first_group: this device's first group of environments, counted over all devices.
          groups: this device's groups of environments, `B / group_envs`.
        """
        members = self.num_minibatches
        rows = self.num_chunks // self.group_chunks
        start = jax.random.randint(key, (rows, self.num_envs // self.group_envs), 0, members)
        start = jax.lax.dynamic_slice_in_dim(start, first_group, groups, axis=1)
        member = (start[None] + jnp.arange(members)[:, None, None]) % members
        first_env = jnp.arange(groups)[None, None] * self.group_envs
        if self.group_chunks == 1:
            return Sequences(first_env + member)
        chunk = jnp.arange(rows)[None, :, None] * self.group_chunks + member // self.group_envs
        return Sequences(first_env + member % self.group_envs, chunk)


def take_sequences(tree: PyTree, sequences: Sequences, length: int) -> PyTree:
    """Gathers sequences [C, G] of `length` L as [L, N, ...] from leaves [T, B, ...], time-major."""
    time_LCG = jnp.arange(length)[:, None, None] + sequences.chunks[None] * length

    def take(x: Array) -> Array:
        rows_LCG = time_LCG * x.shape[1] + sequences.environment[None]
        flat = x.reshape(-1, *x.shape[2:])
        return flat.at[rows_LCG.reshape(length, -1)].get(mode="promise_in_bounds")

    return jax.tree.map(take, tree)


def take_carries(tree: PyTree, sequences: Sequences) -> PyTree:
    """Gathers the carries [N, ...] before those sequences from leaves [T / L, B, ...]."""

    def take(x: Array) -> Array:
        taken = x.at[sequences.chunks, sequences.environment].get(mode="promise_in_bounds")
        return taken.reshape(-1, *x.shape[2:])

    return jax.tree.map(take, tree)


def put_sequences(x_MLN: Array, sequences: Sequences, length: int, num_envs: int) -> Array:
    """Inverse of `take_sequences` for all minibatches of an epoch: [T, B, ...] from [M, L, N, ...]."""
    minibatches, _, count = x_MLN.shape[:3]
    time_MLCG = jnp.arange(length)[None, :, None, None]
    chunk_MCG = jax.vmap(lambda s: jnp.broadcast_to(s.chunks, s.environment.shape))(sequences)
    time_MLCG = time_MLCG + chunk_MCG[:, None] * length
    rows = (time_MLCG * num_envs + sequences.environment[:, None]).reshape(minibatches, length, count)
    flat = jnp.zeros((rows.size, *x_MLN.shape[3:]), x_MLN.dtype)
    flat = flat.at[rows.reshape(-1)].set(x_MLN.reshape(-1, *x_MLN.shape[3:]), unique_indices=True)
    return flat.reshape(-1, num_envs, *x_MLN.shape[3:])


def split(taken: Sequences, chunk_parts: int, environment_parts: int) -> Sequences:
    """The parts of a minibatch, with leading dimension `chunk_parts * environment_parts`."""

    def parts_of(x: Array) -> Array:
        chunks = x.shape[0] // chunk_parts
        groups = x.shape[1] // environment_parts
        by_part = x.reshape(chunk_parts, chunks, environment_parts, groups).swapaxes(1, 2)
        return by_part.reshape(-1, chunks, groups)

    chunks = taken.environment.shape[0] // chunk_parts
    first = jnp.repeat(jnp.arange(chunk_parts) * chunks, environment_parts)
    chunk = None if taken.chunk is None else parts_of(taken.chunk)
    return Sequences(parts_of(taken.environment), chunk, first)


def join(x_PLN: Array, chunk_parts: int, environment_parts: int, chunks: int, environments: int) -> Array:
    """Rows [L, N, ...] of a minibatch from its parts' [parts, L, n, ...]; inverse of `split`."""
    length = x_PLN.shape[1]
    rest = x_PLN.shape[3:]
    grid = x_PLN.reshape(
        chunk_parts,
        environment_parts,
        length,
        chunks // chunk_parts,
        environments // environment_parts,
        *rest,
    )
    order = (2, 0, 3, 1, 4, *range(5, grid.ndim))
    return grid.transpose(order).reshape(length, chunks * environments, *rest)


@flax.struct.dataclass
class Batch:
    """Leaves [T, B, ...], in a minibatch [L, N, ...].

    Attributes:
      obs: as the network sees them.
      reset, action, action_mask, valid, weight: as in a `Trajectory`.
      carry: the one before each sequence, [T / L, B, ...], in a minibatch [N, ...].
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


_T = TypeVar("_T")

# Activations of this many time steps stay in a core's cache between the forward and the backward pass, and
# the products are still large enough (docs/performance.md). A product of a recurrent core covers the steps of
# one time only, so that it needs more of them; one large image gives a thousand rows.
CPU_PART_STEPS = {"recurrent": 2048, "feed-forward": 512, "images": 64}


def parts(
    wanted: int, chunks: int, environments: int, length: int, agent: Agent, axis: Axis, obs: PyTree
) -> tuple[int, int]:
    """The number of times that the chunks in time and the groups of environments of a minibatch are divided.

    Args:
      wanted: parts over environments, as configured; 0: on CPU so that each has about `CPU_PART_STEPS` time
        steps, elsewhere one.
      chunks, environments: of a minibatch, whose product is its number of sequences.
      length: time steps of a sequence.
      agent: decides which kind of work it is.
      axis: this device; only its platform counts.
      obs: leaves [T, B, *O]; only shapes count.
    """
    if wanted or axis.platform != "cpu":
        return 1, wanted or 1
    most = environments * chunks * length // CPU_PART_STEPS[_kind_of_work(agent, obs)]
    environment_parts = _largest_divisor(environments, most)
    return _largest_divisor(chunks, most // environment_parts), environment_parts


def sum_of_parts(
    gradient: Callable[[Sequences], tuple[_T, PyTree]], taken: Sequences, divided: tuple[int, int]
) -> tuple[_T, PyTree]:
    """(the sums of a minibatch, its rows [L, N, ...]), part by part.

    Args:
      gradient: of some sequences: (a tree that is summed, a tree of [L, n, ...]).
    """
    if divided == (1, 1):
        return gradient(taken)
    by_part = split(taken, *divided)
    first = jax.tree.map(lambda x: x[0], by_part)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(gradient, first)[0])

    def add(total: _T, part: Sequences) -> tuple[_T, PyTree]:
        found, rows = gradient(part)
        return jax.tree.map(jnp.add, total, found), rows

    sums, rows = jax.lax.scan(add, zeros, by_part)
    return sums, jax.tree.map(lambda x: join(x, *divided, *taken.environment.shape), rows)


def _kind_of_work(agent: Agent, obs: PyTree) -> str:
    if any(is_large_image(x.shape[2:]) for x in jax.tree.leaves(obs)):
        return "images"
    return "recurrent" if agent.network.waits_for_the_carry else "feed-forward"


def _largest_divisor(n: int, most: int) -> int:
    """The largest divisor of `n` up to `most`, at least 1."""
    return max(d for d in range(1, n + 1) if n % d == 0 and d <= max(1, most))
