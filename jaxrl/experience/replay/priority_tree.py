"""Leaves of prioritised replay with sums and maxima over blocks, so that no step reads all of them.

Blocks are brought up to date where leaves change; sampling descends from sums of sums of blocks.
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.experience.replay import sampling
from jaxrl.experience.replay.sampling import Groups, Places
from jaxrl.types import Array

WIDTH = 16  # leaves of a block, and blocks of a block of blocks
_WIDEST = 64  # sums of a group that are compared at once
_ROUNDS = 8  # of independent draws, before a race among all leaves that are left
_AGAIN = 0x505249  # keys of the rounds after the first
_RACED = 2**12  # leaves of a group that race at once
_FEW = 64  # samples of a group, up to which comparing all pairs is fastest
_MANY = 640  # and beyond which sorting is faster
_TABLE = 2**14  # leaves of a group, up to which a table of them is faster than both


@flax.struct.dataclass
class PriorityTree:
    """The leaves of B environments; a pytree.

    Attributes:
      leaf: float32[B, blocks * WIDTH], see `priorities`; 0 where nothing begins, and beyond the items.
      total: float32[B, blocks], sums of the leaves that may be sampled.
      largest: float32[B, blocks], of all leaves.
      count: int32[B], leaves above 0 that may be sampled.
    """

    leaf: Array
    total: Array
    largest: Array
    count: Array


def empty(envs: int, items: int) -> PriorityTree:
    """A tree whose leaves are all 0."""
    # Many blocks are rounded up to a multiple of `WIDTH`: then sampling need not pad them.
    whole = WIDTH**2 if items > WIDTH**2 else WIDTH
    blocks = -(-items // whole) * whole // WIDTH
    sums = jnp.zeros((envs, blocks), jnp.float32)
    leaf = jnp.zeros((envs, blocks * WIDTH), jnp.float32)
    return PriorityTree(leaf, sums, jnp.zeros_like(sums), jnp.zeros(envs, jnp.int32))


def window(size: int, first: Array, before: int, written: int, after: int) -> tuple[Array, int]:
    """(int32[N] different neighbours in a ring, how many of them lie before `first`).

    Args:
      size: items of the ring.
      first: int32[], the first item that is written.
      before, written, after: items before it, from it on, and after those; less if the ring is shorter.
    """
    before = min(before, size - written)
    after = min(after, size - written - before)
    return (first - before + jnp.arange(before + written + after)) % size, before


def write(tree: PriorityTree, items: Array, leaf: Array, was: Places, now: Places) -> PriorityTree:
    """With other leaves of neighbouring items, and other items that may be sampled.

    Args:
      items: int32[N], of `window`; nothing else changes, neither its leaf nor whether it may be sampled.
      leaf: float32[B, N].
      was, now: the places that could be sampled before, and those that can be now.
    """
    number = lambda leaf, places: ((leaf > 0) & places.allow(items)[None]).sum(axis=1, dtype=jnp.int32)  # noqa: E731
    gone = number(tree.leaf[:, items], was)
    # Adds 0. Unless what is written depends on what is read of the old leaves, XLA copies all of them.
    leaf = leaf + jnp.minimum(gone, 0)[:, None].astype(jnp.float32)
    count = tree.count - gone + number(leaf, now)
    leaves = tree.leaf.at[:, items].set(leaf, unique_indices=True)
    # One item in each block from the first to the last, also across the end, where a block may be shorter.
    block = jnp.concatenate([items[::WIDTH], items[-1:], jnp.full(1, now.size - 1, items.dtype)]) // WIDTH
    member = block[:, None] * WIDTH + jnp.arange(WIDTH)[None]
    found = leaves.reshape(len(leaves), -1, WIDTH)[:, block]
    total = tree.total.at[:, block].set(jnp.where(now.allow(member)[None], found, 0.0).sum(axis=-1))
    largest = tree.largest.at[:, block].set(found.max(axis=-1))
    return PriorityTree(leaves, total, largest, count)


def update(
    tree: PriorityTree, where: tuple[Array, Array], leaf: Array, usable: Array, places: Places
) -> PriorityTree:
    """With new leaves of items that were sampled.

    Args:
      where: (env, item) int32[N], different ones; of those whose leaf is 0, nothing changes.
      leaf: float32[N], above 0. Those that are not finite do not enter.
      usable: bool[N], False: keep the old one.
    """
    env, item = where
    # Numbers of one array: XLA for CPU puts pairs of indices together in a separate kernel.
    flat = tree.leaf.reshape(-1)
    blocks = tree.total.shape[1]
    at = env * tree.leaf.shape[1] + item
    known = flat.at[at].get(mode="clip") > 0
    written = usable & jnp.isfinite(leaf) & known
    flat = flat.at[jnp.where(written, at, len(flat))].set(leaf, mode="drop")
    block = (item.astype(jnp.uint32) // WIDTH).astype(jnp.int32)
    member = block[:, None] * WIDTH + jnp.arange(WIDTH)[None]
    of_all = env * blocks + block
    found = flat.reshape(-1, WIDTH).at[of_all].get(mode="clip")
    total = _row_sums(jnp.where(places.allow(member), found, 0.0))
    changed = jnp.where(written, of_all, tree.total.size)  # out of bounds: dropped

    def put(sums: Array, new: Array) -> Array:
        return sums.reshape(-1).at[changed].set(new, mode="drop").reshape(sums.shape)

    return dataclasses.replace(
        tree,
        leaf=flat.reshape(tree.leaf.shape),
        total=put(tree.total, total),
        largest=put(tree.largest, found.max(axis=1)),
    )


def in_turn(tree: PriorityTree, places: Places, groups: Groups, key: Array) -> tuple[Array, Array, Array]:
    """Samples from each group of neighbouring environments, as one by one without replacement.

    Independent draws without their repetitions have that distribution; if many are repeated, more follow, and
    a race among the leaves that are left gives what is still missing.

    The key is equal on all devices.

    Returns:
      (int32[groups, each] indices into the leaves of the group, bool[groups, each], True if there was one;
      these come first; float32[groups], sums of the leaves that may be sampled).
    """
    stride = tree.leaf.shape[1]
    each = groups.each
    wanted = jnp.minimum(tree.count.reshape(groups.here, -1).sum(axis=1), each)
    levels = _sums(tree.total.reshape(groups.here, -1))
    flat = tree.leaf.reshape(groups.here, -1)
    leaves = flat.shape[1]
    upto = jnp.dot(levels[0], _up_to(levels[0].shape[1]), precision=jax.lax.Precision.HIGHEST)
    upto = jax.lax.optimization_barrier(upto)  # or it would be computed again in the loops
    total = upto[:, -1]
    tries = each + max(2, each // 4)

    def independent(key: Array) -> Array:
        # One array for all groups: making a key takes as long as sampling with it.
        noise = _kept(sampling.uniform(key, ((len(levels) + 1) * tries * groups.total,)))
        noise = noise.reshape(len(levels) + 1, tries, groups.total)
        return _descend(upto, [*levels[1:], flat], places, stride, groups.take(noise, axis=2)).T

    def missing(index: Array) -> Array:
        return ((index < 0) & (jnp.arange(each)[None] < wanted[:, None])).any()

    def another(state: tuple[Array, Array]) -> tuple[Array, Array]:
        index, turn = state
        more = independent(jax.random.fold_in(key, _AGAIN + turn))
        return _distinct(jnp.concatenate([index, more], axis=1), each, leaves), turn + 1

    def race(state: tuple[Array, Array]) -> tuple[Array, Array]:
        index, turn = state
        gone = jnp.where(index < 0, flat.shape[1], index)
        width = min(_RACED, flat.shape[1])

        def raced(key: Array, flat: Array, gone: Array) -> tuple[Array, Array]:
            def left(start: Array) -> Array:
                item = jax.lax.rem(start + jnp.arange(width), stride)
                leaf = jax.lax.dynamic_slice_in_dim(flat, start, width)
                within = jnp.where(gone < start, width, gone - start)
                return jnp.where(places.allow(item), leaf, 0.0).at[within].set(0.0, mode="drop")

            return sampling.by_race_in_blocks(key, left, len(flat), width, each)

        more, found = jax.vmap(raced)(groups.keys(jax.random.fold_in(key, _AGAIN + turn)), flat, gone)
        more = jnp.where(found, more, -1)
        return _distinct(jnp.concatenate([index, more], axis=1), each, leaves), turn + 1

    def the_rest(state: tuple[Array, Array]) -> tuple[Array, Array]:
        state = jax.lax.while_loop(lambda s: missing(s[0]) & (s[1] < _ROUNDS), another, state)
        return jax.lax.while_loop(lambda s: missing(s[0]) & (s[1] == _ROUNDS), race, state)

    # A loop of one turn at most: of a conditional both sides would be computed under `vmap`. And one for the
    # loops in it, since each takes as long as a kernel even if it does not turn.
    first = _distinct(independent(key), each, leaves), jnp.int32(1)
    index, _ = jax.lax.while_loop(lambda s: missing(s[0]) & (s[1] <= _ROUNDS), the_rest, first)
    return jnp.maximum(index, 0), index >= 0, total


def _row_sums(rows: Array) -> Array:
    """float32[...], sums of the last axis. As a product: XLA for CPU adds up short rows slowly."""
    return jnp.dot(rows, jnp.ones(rows.shape[-1]), precision=jax.lax.Precision.HIGHEST)


def _kept(x: Array) -> Array:
    """float32[N] unchanged, from a product: XLA for CPU would compute it anew wherever it is read."""
    half = -(-len(x) // 2)
    pairs = jnp.pad(x, (0, 2 * half - len(x))).reshape(2, half)
    return jnp.dot(jnp.eye(2), pairs, precision=jax.lax.Precision.HIGHEST).reshape(-1)[: len(x)]


def _sums(total: Array) -> list[Array]:
    """Sums of `WIDTH` neighbours, float32[groups, n] by level, from at most `_WIDEST` to the blocks'."""
    levels = [total]
    while levels[0].shape[1] > _WIDEST:
        levels[0] = jnp.pad(levels[0], ((0, 0), (0, -levels[0].shape[1] % WIDTH)))
        summed = _row_sums(levels[0].reshape(len(total), -1, WIDTH))
        # Kept: XLA for CPU would sum anew wherever a sum is read.
        levels.insert(0, jax.lax.optimization_barrier(summed))
    return levels


def _descend(upto: Array, levels: list[Array], places: Places, stride: int, noise: Array) -> Array:
    """int32[N, groups] indices into the leaves, in proportion to them; -1 where all are 0.

    Args:
      upto: float32[groups, n], sums of the highest level up to each.
      levels: float32[groups, n], those below it; the last are the leaves.
      stride: leaves of each environment.
      noise: float32[1 + levels, N, groups], uniform on [0, 1).
    """
    _, tries, groups = noise.shape
    noise = noise.reshape(len(noise), -1)
    # A child is chosen by the number of those whose sum, with all before them, is at most the target. It has
    # a weight, since the sum at a child without one is that at the child before; unless all are 0, a sum is
    # infinite, or a processor adds up columns in different orders. What was chosen then does not count.
    target = noise[0].reshape(tries, groups) * upto[None, :, -1]
    node = (upto.T[:, None] <= target[None]).sum(axis=0, dtype=jnp.uint32).reshape(-1)
    node = jnp.minimum(node, upto.shape[1] - 1)
    group = jnp.tile(jnp.arange(groups, dtype=jnp.uint32), tries)
    for depth, sums in enumerate(levels, 1):
        at = group * (sums.shape[1] // WIDTH) + node
        children = sums.reshape(-1, WIDTH).at[at].get(mode="clip")
        if depth == len(levels):
            item = jax.lax.rem((node * WIDTH).astype(jnp.int32), stride)[:, None] + jnp.arange(WIDTH)[None]
            children = jnp.where(places.allow(item), children, 0.0)
        sums_upto = jnp.dot(children, _up_to(WIDTH), precision=jax.lax.Precision.HIGHEST)
        target = noise[depth] * sums_upto[:, -1]
        chosen = (sums_upto <= target[:, None]).sum(axis=1, dtype=jnp.uint32)
        chosen = jnp.minimum(chosen, WIDTH - 1)
        node = node * WIDTH + chosen
    number = jnp.arange(len(node), dtype=jnp.uint32)
    weight = children.reshape(-1).at[number * WIDTH + chosen].get(mode="promise_in_bounds")
    found = (weight > 0) & (node < levels[-1].shape[1])
    return jnp.where(found, node.astype(jnp.int32), -1).reshape(tries, groups)


def _up_to(width: int) -> Array:
    """float32[width, width], whose product with a row has the sums of its numbers up to each."""
    number = jnp.arange(width)
    return (number[:, None] <= number[None, :]).astype(jnp.float32)


def _distinct(index: Array, each: int, leaves: int) -> Array:
    """int32[groups, each], the first different indices below `leaves` of each group in order, then -1."""
    index = jax.lax.optimization_barrier(index)  # or it would be computed anew wherever it is read
    kept = (index >= 0) & jax.vmap(lambda index: _is_first(index, leaves))(index)
    if index.shape[1] <= _FEW:
        # By comparisons over rows, fewer and shorter kernels than a cumulative sum and a scatter.
        kept, index = kept.T, index.T
        order = jnp.arange(len(index))
        earlier = (order[:, None] < order[None, :])[..., None]
        place = (kept[:, None] & earlier).sum(axis=0, dtype=jnp.int32)
        here = kept[:, None] & (place[:, None] == jnp.arange(each)[None, :, None])
        return jnp.where(here, index[:, None], -1).max(axis=0).T

    def of_group(index: Array, kept: Array) -> Array:
        place = jnp.where(kept, jnp.cumsum(kept, dtype=jnp.int32) - 1, each)
        return jnp.full(each, -1, jnp.int32).at[place].set(index, mode="drop")

    return jax.vmap(of_group)(index, kept)


def _is_first(index: Array, leaves: int) -> Array:
    """bool[N], False for those of int32[N], from -1 to below `leaves`, that stand there earlier."""
    order = jnp.arange(len(index))
    if len(index) > _FEW and leaves <= _TABLE:
        place = jnp.where(index < 0, leaves, index)
        earliest = jnp.full(leaves + 1, len(index), jnp.int32).at[place].min(order)
        return earliest[place] == order
    if len(index) > _MANY:
        by_value = jnp.argsort(index, stable=True)
        ordered = index[by_value]
        first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
        return jnp.zeros(len(index), bool).at[by_value].set(first, unique_indices=True)
    # The earliest equal one, over rows: XLA for CPU takes many columns at once.
    return jnp.where(index[:, None] == index[None, :], order[:, None], len(index)).min(axis=0) == order
