"""The memory of a window of steps: M entries, written in a circle, and attention of a single step to them.

A step writes one entry, over the oldest, and moves none: on a CPU moving them all took a third of a step of
acting. `valid` says what each place holds: 0 nothing of this episode, 1 an entry, 2 the newest entry. Without
a 2 the newest is in the last place, as in an empty memory and in memories that were stored in their order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrl.networks.kernels.windowed_attention import MASKED, Biases
from jaxrl.types import Array

_NEWEST = 2.0


class WindowEntries(NamedTuple):
    """The entries before a step, in any order.

    Attributes:
      entries_NMF: float32; zeros where the step sees nothing, unless `dropped_N`.
      ages_NM: int32, of each: 0 for the one before the step.
      visible_NM: bool, which of them the step sees.
      dropped_N: bool, the step sees none, since an episode begins with it.
    """

    entries_NMF: Array
    ages_NM: Array
    visible_NM: Array
    dropped_N: Array


def newest_of(valid_NM: Array) -> Array:
    """int32[N], the place of the newest entry; exactly one, whatever `valid_NM` holds."""
    places = valid_NM.shape[1]
    marked = valid_NM.max(axis=1) >= _NEWEST
    return jnp.where(marked, jnp.argmax(valid_NM, axis=1), places - 1).astype(jnp.int32)


def ages(valid_NM: Array) -> Array:
    """int32[N, M]: 0 for the place of the newest entry, M - 1 for the oldest's."""
    places = valid_NM.shape[1]
    return (newest_of(valid_NM)[:, None] + places - jnp.arange(places, dtype=jnp.int32)[None]) % places


def in_order(memory_NMF: Array, valid_NM: Array) -> tuple[Array, Array]:
    """(entries from the oldest to the newest, bool[N, M]: which of them are of this episode)."""
    order = _places(newest_of(valid_NM) + 1, valid_NM.shape[1])
    valid = jnp.take_along_axis(valid_NM, order, axis=1, mode="promise_in_bounds") != 0
    return _rows(memory_NMF, order), valid


def remember(memory: Array, valid: Array, x_LNF: Array, reset_LN: Array) -> tuple[Array, Array]:
    """(memory, valid) after a sequence: its last M entries, with zeros for other episodes'.

    Args:
      memory: float32[N, M, F], before it.
      valid: float32[N, M], what `memory` holds.
      x_LNF: the entries of the sequence; an episode begins at steps of `reset_LN`.
    """
    places = memory.shape[1]
    if len(x_LNF) == 1:
        # Nothing but selections, so that it all becomes one loop.
        held = jnp.where(reset_LN[0][:, None], 0.0, valid)
        written = ages(held) == places - 1
        memory = jnp.where(reset_LN[0][:, None, None], 0.0, memory)
        memory = jnp.where(written[..., None], x_LNF[0][:, None], memory)
        return memory, jnp.where(written, _NEWEST, jnp.minimum(held, 1.0))
    before, held = in_order(memory, valid)
    last = x_LNF[-places:].swapaxes(0, 1)
    kept = places - last.shape[1]
    begins = jnp.flip(jnp.cumsum(jnp.flip(reset_LN, 0), axis=0), 0).T  # [N, L], at step t or later
    # An entry stays if no episode begins after it.
    after = jnp.concatenate([begins[:, 1:], jnp.zeros_like(begins[:, :1])], axis=1) == 0
    old = begins[:, :1] == 0
    held = jnp.concatenate([held[:, places - kept :] & old, after[:, -places:]], axis=1)
    entries = jnp.concatenate([before[:, places - kept :], last], axis=1)
    entries = jnp.where(held[..., None], entries, 0.0)
    marks = held.astype(jnp.float32).at[:, -1].set(_NEWEST)
    # To the places that single steps write to: an episode begins with the first.
    end = jnp.where(old[:, 0], newest_of(valid) + 1, 0) + after.sum(axis=1)
    order = _places(-end, places)
    return _rows(entries, order), jnp.take_along_axis(marks, order, axis=1, mode="promise_in_bounds")


def attend_step(
    query_NHK: Array,
    memory: WindowEntries,
    own_NF: Array,
    key_FHK: Array,
    value_FHK: Array,
    position_WHK: Array,
    biases: Biases,
) -> Array:
    """float32[N, H, K], attention of one step to itself and to the entries of a memory, in whatever order.

    Query and weights are multiplied first, so that nobody computes keys and values of the whole window:
    (x W) q = x (W q). The memory is read twice and never copied.

    Args:
      query_NHK: in the dtype of the products, as the weights.
      memory: the entries before this one.
      own_NF: float32, the entry of the step itself.
      key_FHK, value_FHK: weights of keys and values.
      position_WHK: r of the distances 0 to M.
      biases: see there.
    """
    dtype = query_NHK.dtype
    entries, own = memory.entries_NMF.astype(dtype), own_NF.astype(dtype)
    content, position = (query_NHK + b.astype(dtype)[None] for b in biases)
    query_NHF = _product("nhk,fhk->nhf", content, key_FHK).astype(dtype)
    by_distance = _product("nhk,whk->nhw", position, position_WHK)
    distance = jnp.broadcast_to(memory.ages_NM[:, None] + 1, by_distance[..., 1:].shape)
    scores = jnp.take_along_axis(by_distance, distance, axis=2, mode="promise_in_bounds")
    scores = scores + jax.lax.platform_dependent(query_NHF, entries, cpu=_scores_on_cpu, default=_scores)
    scores = jnp.where(memory.visible_NM[:, None], scores, MASKED)
    of_own = _product("nf,nhf->nh", own, query_NHF) + by_distance[..., 0]
    scores = jnp.concatenate([scores, of_own[..., None]], axis=-1) / math.sqrt(query_NHK.shape[-1])
    weights = jax.nn.softmax(scores, axis=-1).astype(dtype)
    mean_NHF = _product("nhm,nmf->nhf", weights[..., :-1], entries)
    # Selected: a dropped memory may hold NaN, and 0 * NaN is NaN.
    mean_NHF = jnp.where(memory.dropped_N[:, None, None], 0.0, mean_NHF)
    mean_NHF = mean_NHF + weights[..., -1:].astype(jnp.float32) * own[:, None].astype(jnp.float32)
    return _product("nhf,fhk->nhk", mean_NHF.astype(dtype), value_FHK)


def _scores(query_NHF: Array, entries_NMF: Array) -> Array:
    return _product("nhf,nmf->nhm", query_NHF, entries_NMF)


def _scores_on_cpu(query_NHF: Array, entries_NMF: Array) -> Array:
    # With the many rows on the left it takes half the time; without the barrier XLA turns it round again.
    scores = _product("nmf,nfh->nmh", entries_NMF, query_NHF.swapaxes(1, 2))
    return jax.lax.optimization_barrier(scores).swapaxes(1, 2)


def _places(first_N: Array, count: int) -> Array:
    """int32[N, count]: `first_N` and the places after it, in a circle."""
    return (first_N[:, None] + jnp.arange(count, dtype=jnp.int32)[None]) % count


def _rows(x_NMF: Array, order_NM: Array) -> Array:
    return jnp.take_along_axis(x_NMF, order_NM[..., None], axis=1, mode="promise_in_bounds")


def _product(equation: str, x: Array, y: Array) -> Array:
    return jnp.einsum(equation, x, y, preferred_element_type=jnp.float32)
