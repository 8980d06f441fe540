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
_ROUNDS = 8  # of independent draws, before a race among all leaves that are left
_AGAIN = 0x505249  # keys of the rounds after the first
_RACED = 2**12  # leaves of a group that race at once
_MANY = 640  # samples of a group, beyond which sorting is faster than comparing all pairs


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
    total = jnp.where(places.allow(member), found, 0.0).sum(axis=1)
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
    total = levels[0].sum(axis=1)
    tries = each + max(2, each // 4)

    def independent(key: Array) -> Array:
        # One array for all groups: making a key takes as long as sampling with it.
        noise = sampling.uniform(key, (groups.total, len(levels) // 2 + 1, tries))
        return _descend(levels, flat, total, places, stride, groups.take(noise))

    def missing(index: Array) -> Array:
        return ((index < 0) & (jnp.arange(each)[None] < wanted[:, None])).any()

    def another(state: tuple[Array, Array]) -> tuple[Array, Array]:
        index, turn = state
        more = independent(jax.random.fold_in(key, _AGAIN + turn))
        return _distinct(jnp.concatenate([index, more], axis=1), each), turn + 1

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
        return _distinct(jnp.concatenate([index, more], axis=1), each), turn + 1

    def the_rest(state: tuple[Array, Array]) -> tuple[Array, Array]:
        state = jax.lax.while_loop(lambda s: missing(s[0]) & (s[1] < _ROUNDS), another, state)
        return jax.lax.while_loop(lambda s: missing(s[0]) & (s[1] == _ROUNDS), race, state)

    # A loop of one turn at most: of a conditional both sides would be computed under `vmap`. And one for the
    # loops in it, since each takes as long as a kernel even if it does not turn.
    first = _distinct(independent(key), each), jnp.int32(1)
    index, _ = jax.lax.while_loop(lambda s: missing(s[0]) & (s[1] <= _ROUNDS), the_rest, first)
    return jnp.maximum(index, 0), index >= 0, total


def _sums(total: Array) -> list[Array]:
    """Sums of `WIDTH` neighbours, float32[groups, n * WIDTH] by level, from the highest to the blocks'."""
    levels: list[Array] = []
    while True:
        levels.insert(0, jnp.pad(total, ((0, 0), (0, -total.shape[1] % WIDTH))))
        if total.shape[1] <= WIDTH:
            return levels
        # As a product, and kept: XLA for CPU adds up short rows slowly, and anew wherever a sum is read.
        rows = levels[0].reshape(len(total), -1, WIDTH)
        summed = jnp.dot(rows, jnp.ones(WIDTH), precision=jax.lax.Precision.HIGHEST)
        total = jax.lax.optimization_barrier(summed)


def _descend(
    levels: list[Array], flat: Array, total: Array, places: Places, stride: int, noise: Array
) -> Array:
    """int32[groups, N] indices into the leaves, in proportion to them; -1 where all are 0.

    Args:
      flat: float32[groups, leaves].
      stride: leaves of each environment.
      noise: float32[groups, (levels + 1) / 2 rounded up, N], uniform on [0, 1). A number is used for two
        levels, so at least 16 of its 24 bits are left for the second.
    """
    groups = len(flat)
    tries = noise.shape[2]
    noise = jax.lax.optimization_barrier(noise)  # or it would be computed anew for each child
    child = jnp.arange(WIDTH)
    earlier = (child[:, None] < child[None, :]).astype(jnp.float32)
    group = jnp.broadcast_to(jnp.arange(groups)[:, None], (groups, tries)).reshape(-1)
    node = jnp.zeros(groups * tries, jnp.int32)
    target = jnp.zeros(groups * tries)
    weight = jnp.repeat(total, tries)
    number = jnp.arange(groups * tries)
    for depth, sums in enumerate([*levels, flat]):
        at = (group * (sums.shape[1] // WIDTH) + node).astype(jnp.uint32)
        children = sums.reshape(-1, WIDTH).at[at].get(mode="promise_in_bounds")
        if depth == len(levels):
            item = jax.lax.rem(node * WIDTH, stride)[:, None] + child[None]
            children = jnp.where(places.allow(item), children, 0.0)
        if depth % 2 == 0:
            target = noise[:, depth // 2].reshape(-1) * weight
        upto = jnp.dot(children, earlier, precision=jax.lax.Precision.HIGHEST)
        # The last that begins at or before the target; rounding cannot leave one without a weight.
        taken = (children > 0) & (upto <= target[:, None])
        chosen = jnp.where(taken, child[None], 0).max(axis=1)
        of_chosen = (number * WIDTH + chosen).astype(jnp.uint32)
        weight, begin = (x.reshape(-1).at[of_chosen].get(mode="promise_in_bounds") for x in (children, upto))
        node = node * WIDTH + chosen
        target = target - begin
    return jnp.where(weight > 0, node, -1).reshape(groups, tries)


def _distinct(index: Array, each: int) -> Array:
    """int32[groups, each], the first different indices of each group in their order, then -1."""
    index = jax.lax.optimization_barrier(index)  # or it would be computed anew wherever it is read

    def of_group(index: Array) -> Array:
        kept = (index >= 0) & _is_first(index)
        place = jnp.where(kept, jnp.cumsum(kept, dtype=jnp.int32) - 1, each)
        return jnp.full(each, -1, jnp.int32).at[place].set(index, mode="drop")

    return jax.vmap(of_group)(index)


def _is_first(index: Array) -> Array:
    """bool[N], False for those of int32[N] that stand there earlier."""
    order = jnp.arange(len(index))
    if len(index) > _MANY:
        by_value = jnp.argsort(index, stable=True)
        ordered = index[by_value]
        first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
        return jnp.zeros(len(index), bool).at[by_value].set(first, unique_indices=True)
    # The earliest equal one, over rows: XLA for CPU takes many columns at once.
    return jnp.where(index[:, None] == index[None, :], order[:, None], len(index)).min(axis=0) == order
