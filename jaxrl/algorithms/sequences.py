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

from dataclasses import dataclass

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


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
    """Gathers sequences [L, N, ...] from leaves [T, B, ...], time-major.

    Args:
      tree: leaves [T, B, ...].
      sequences: [C, G] of them.
      length: L.
    """
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
