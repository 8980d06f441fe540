"""From a trajectory to minibatches of sequences.

A trajectory [T, B] is cut into chunks of L steps, contiguous in time; one sequence is one chunk of one
environment. Time steps inside a sequence are never shuffled.

The shuffle is stratified: environments are taken in groups of M neighbours (M minibatches), and every
group deals its M members out, one to each minibatch, starting at a random member. Each chunk and each
group draws a start of its own. Every sequence is used once per epoch and lands in any minibatch with equal
probability; no sort is needed; and since groups never straddle devices, N devices form the very minibatches
that one device forms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


def minibatch_environments(
    key: Array, num_chunks: int, num_envs: int, num_minibatches: int, first_group: Array | int, groups: int
) -> Array:
    """Which environment each sequence of each minibatch comes from.

    Args:
      key: one key for all devices; the epoch's.
      num_chunks: T / L.
      num_envs: environments of ALL devices.
      num_minibatches: M; divides the environments of each device.
      first_group: this device's first group, counted over all devices.
      groups: this device's groups, `B / M`.

    Returns:
      int32[M, T / L, B / M]: environment index on this device, for minibatch, chunk and group.
    """
    total = num_envs // num_minibatches
    start = jax.random.randint(key, (num_chunks, total), 0, num_minibatches)
    start = jax.lax.dynamic_slice_in_dim(start, first_group, groups, axis=1)
    member = (start[None] + jnp.arange(num_minibatches)[:, None, None]) % num_minibatches
    return jnp.arange(groups)[None, None] * num_minibatches + member


def take_sequences(tree: PyTree, environment_CG: Array, length: int, first_chunk: Array | int = 0) -> PyTree:
    """Gathers sequences [L, N, ...] from leaves [T, B, ...]; N = C * G, chunk-major.

    Args:
      tree: leaves [T, B, ...], time-major.
      environment_CG: int32[C, G], environment of each sequence, by chunk.
      length: L.
      first_chunk: where these C of the T / L chunks begin.
    """
    chunk_C = first_chunk + jnp.arange(environment_CG.shape[0])
    time_LC = jnp.arange(length)[:, None] + chunk_C[None] * length

    def take(x: Array) -> Array:
        rows_LCG = time_LC[:, :, None] * x.shape[1] + environment_CG[None]
        flat = x.reshape(-1, *x.shape[2:])
        return flat.at[rows_LCG.reshape(length, -1)].get(mode="promise_in_bounds")

    return jax.tree.map(take, tree)


def take_carries(tree: PyTree, environment_CG: Array, first_chunk: Array | int = 0) -> PyTree:
    """Gathers the carries [N, ...] before those sequences from leaves [T / L, B, ...]."""
    chunk_C1 = first_chunk + jnp.arange(environment_CG.shape[0])[:, None]

    def take(x: Array) -> Array:
        return x.at[chunk_C1, environment_CG].get(mode="promise_in_bounds").reshape(-1, *x.shape[2:])

    return jax.tree.map(take, tree)
