"""Attention of each step to itself and the M steps before it, of its own episode, with relative positions.

The score of a query at step t and a key at step t - d is (q_t + u) k_{t-d} + (q_t + v) r_d, where r_d belongs
to the distance d alone (Dai et al. 2019, "Transformer-XL", section 3.3). No step sees the one M + 1 before
it, whatever came before the sequence, so a sequence gives what its steps give one after the other.

Steps before the sequence come from a memory of M entries; some may be empty.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.types import Array

Dtype = Any
# Larger than any score, and finite: the difference of two infinities is NaN.
_MASKED = -1e30


class Biases(NamedTuple):
    """float32[heads, D / heads] each, added to every query: for contents (u) and for positions (v)."""

    content: Array
    position: Array


def sinusoids(length: int, size: int) -> Array:
    """float32[length, size]: sines and cosines of 0, 1, ..., length - 1 (Vaswani et al. 2017)."""
    half = (size + 1) // 2
    rate = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(length, dtype=jnp.float32)[:, None] * rate[None]
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)[:, :size]


def remember(memory: Array, valid: Array, x_LNF: Array, reset_LN: Array) -> tuple[Array, Array]:
    """The memory after a sequence: its last M entries, with zeros for those of other episodes.

    Args:
      memory: float32[N, M, F], before it.
      valid: float32[N, M], not 0 where `memory` holds an entry.
      x_LNF: the entries of the sequence.
      reset_LN: bool; an episode begins at step t.

    Returns:
      (memory, valid) as the arguments.
    """
    length = memory.shape[1]
    if len(x_LNF) == 1:
        # Most steps are no first ones; nothing but selections, so that it all becomes one loop.
        valid = jnp.where(reset_LN[0][:, None], 0.0, valid)
        memory = jnp.where(reset_LN[0][:, None, None], 0.0, memory)
        memory = jnp.concatenate([memory, x_LNF[0][:, None]], axis=1)[:, 1:]
        return memory, jnp.concatenate([valid, jnp.ones_like(valid[:, :1])], axis=1)[:, 1:]
    last = x_LNF[-length:].swapaxes(0, 1)
    kept = length - last.shape[1]
    # An entry stays if no episode begins after it.
    begins = jnp.flip(jnp.cumsum(jnp.flip(reset_LN, 0), axis=0), 0).T  # [N, L], at step t or later
    after = jnp.concatenate([begins[:, 1:], jnp.zeros_like(begins[:, :1])], axis=1)[:, -length:] == 0
    stays = jnp.broadcast_to(begins[:, :1] == 0, (len(memory), kept))
    stays = jnp.concatenate([stays, after], axis=1)
    memory = jnp.concatenate([memory[:, length - kept :], last], axis=1)
    valid = jnp.concatenate([valid[:, length - kept :], jnp.ones(last.shape[:2])], axis=1)
    # Selected, not multiplied: 0 * NaN is NaN, and one diverged episode would spoil all that follow.
    return jnp.where(stays[..., None], memory, 0.0), jnp.where(stays, valid, 0.0)


def attend_step(
    query_NHK: Array,
    window_NWF: Array,
    visible_NW: Array,
    key_FHK: Array,
    value_FHK: Array,
    position_WHK: Array,
    biases: Biases,
) -> Array:
    """Attention of one step to a window that ends with it.

    Query and weights are multiplied first, so that nobody computes keys and values of the whole window:
    (x W) q = x (W q).

    Args:
      query_NHK: in the dtype of the products, as the weights.
      window_NWF: float32, W = M + 1 entries.
      visible_NW: bool.
      key_FHK, value_FHK: weights of keys and values.
      position_WHK: r of the distances 0 to M.
      biases: see there.

    Returns:
      float32[N, H, K].
    """
    dtype = query_NHK.dtype
    window = jnp.where(visible_NW[..., None], window_NWF, 0.0).astype(dtype)
    content, position = (query_NHK + b.astype(dtype)[None] for b in biases)
    query_NHF = _product("nhk,fhk->nhf", content, key_FHK)
    scores = _product("nhf,nwf->nhw", query_NHF.astype(dtype), window)
    scores = scores + _product("nhk,whk->nhw", position, position_WHK[::-1])
    weights_NHW = _softmax(scores / math.sqrt(query_NHK.shape[-1]), visible_NW[:, None])
    mean_NHF = _product("nhw,nwf->nhf", weights_NHW.astype(dtype), window)
    return _product("nhf,fhk->nhk", mean_NHF.astype(dtype), value_FHK)


def attend_sequence(
    query_LNHK: Array,
    key_TNHK: Array,
    value_TNHK: Array,
    segment_TN: Array,
    position_WHK: Array,
    biases: Biases,
) -> Array:
    """Attention of every step of a sequence to a window that ends with it.

    Sequences longer than the memory are computed in blocks of its length, each of which sees itself and the
    block before it: their cost is linear in the length.

    Args:
      query_LNHK: in the dtype of the products.
      key_TNHK, value_TNHK: of T = M + L entries, those of the memory first.
      segment_TN: int32, the episode of each; -1 where the memory holds nothing.
      position_WHK: r of the W = M + 1 distances from 0 to M.
      biases: see there.

    Returns:
      float32[L, N, H, K].
    """
    length = len(query_LNHK)
    memory = len(position_WHK) - 1
    block = min(length, memory)
    count = -(-length // block)
    padded = count * block - length
    query = _pad(query_LNHK, padded)
    segment = _pad(segment_TN, padded, -2)
    queries = query.reshape(count, block, *query.shape[1:])
    keys, values, segments = (_windows(_pad(x, padded), count) for x in (key_TNHK, value_TNHK, segment_TN))
    own = segment[memory:].reshape(count, block, -1)  # of each query

    content, position = (queries + b.astype(queries.dtype)[None, None, None] for b in biases)
    scores = _product("bcnhk,bwnhk->bnhcw", content, keys)
    # Column M - d holds distance d; column c of row i belongs to the key i + c.
    by_distance = _product("bcnhk,whk->bnhcw", position, position_WHK[::-1])
    scores = (scores + _skew(by_distance)) / math.sqrt(query_LNHK.shape[-1])
    ahead = jnp.arange(block + memory)[None] - jnp.arange(block)[:, None]
    inside = (ahead >= 0) & (ahead <= memory)
    same = own.transpose(0, 2, 1)[..., None] == segments.transpose(0, 2, 1)[:, :, None]
    weights = _softmax(scores, (same & inside[None, None])[:, :, None])
    # What is masked has a weight of 0, and 0 * NaN is NaN: a diverged episode would spoil its neighbours.
    values = jnp.where(jnp.isfinite(values), values, 0)
    out = _product("bnhcw,bwnhk->bcnhk", weights.astype(values.dtype), values)
    return out.reshape(count * block, *out.shape[2:])[:length]


def _windows(x: Array, count: int) -> Array:
    """[M + L, ...] as [blocks, M + block, ...]: each block with the M entries before it."""
    if count == 1:
        return x[None]
    blocks = x.reshape(count + 1, -1, *x.shape[1:])
    return jnp.concatenate([blocks[:-1], blocks[1:]], axis=1)


def _pad(x: Array, count: int, value: int = 0) -> Array:
    return jnp.pad(x, [(0, count)] + [(0, 0)] * (x.ndim - 1), constant_values=value) if count else x


def _skew(x: Array) -> Array:
    """[..., C, W] as [..., C, C + W - 1], each row i moved to the right by i, without a gather."""
    *leading, rows, width = x.shape
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, rows)])
    flat = x.reshape(*leading, -1)[..., : rows * (rows + width - 1)]
    return flat.reshape(*leading, rows, rows + width - 1)


def _softmax(scores: Array, visible: Array) -> Array:
    return jax.nn.softmax(jnp.where(visible, scores, _MASKED), axis=-1)


def _product(equation: str, x: Array, y: Array) -> Array:
    return jnp.einsum(equation, x, y, preferred_element_type=jnp.float32)
