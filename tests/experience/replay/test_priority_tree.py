"""The tree of priorities beside plain numpy, and its draws beside the probabilities that they should have."""

from __future__ import annotations

import dataclasses
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.replay import priority_tree
from jaxrl.experience.replay.priority_tree import PriorityTree
from jaxrl.experience.replay.sampling import Groups, Places

ENVS, SIZE, WRITTEN, HIDDEN = 2, 291, 3, 2


def places_of(count: int) -> Places:
    """Of a ring after `count` items: all but the newest `HIDDEN`."""
    held = min(count, SIZE)
    oldest = count % SIZE if held == SIZE else 0
    return Places(ENVS, SIZE, jnp.int32(oldest), jnp.int32(max(held - HIDDEN, 0)))


def test_sums_maxima_and_counts_after_overwrites() -> None:
    random = np.random.default_rng(0)
    tree, plain = priority_tree.empty(ENVS, SIZE), np.zeros((ENVS, SIZE), np.float32)

    @jax.jit
    def add(
        tree: PriorityTree, cursor: jax.Array, new: jax.Array, was: jax.Array, now: jax.Array
    ) -> PriorityTree:
        items, first = priority_tree.window(SIZE, cursor, HIDDEN, WRITTEN, 0)
        leaf = tree.leaf[:, items].at[:, first:].set(new)
        return priority_tree.write(tree, items, leaf, Places(ENVS, SIZE, *was), Places(ENVS, SIZE, *now))

    @jax.jit
    def update(
        tree: PriorityTree, env: jax.Array, item: jax.Array, leaf: jax.Array, now: jax.Array
    ) -> PriorityTree:
        usable = jnp.arange(len(leaf)) != 1
        return priority_tree.update(tree, (env, item), leaf, usable, Places(ENVS, SIZE, *now))

    def facts(places: Places) -> jax.Array:
        return jnp.stack([places.oldest, places.complete])

    for i in range(2 * SIZE // WRITTEN + 5):
        new = np.where(random.random((ENVS, WRITTEN)) < 0.2, 0.0, random.exponential(size=(ENVS, WRITTEN)))
        at = np.arange(i * WRITTEN, (i + 1) * WRITTEN) % SIZE
        plain[:, at] = new
        was, now = places_of(i * WRITTEN), places_of((i + 1) * WRITTEN)
        tree = add(tree, jnp.int32(at[0]), jnp.float32(new), facts(was), facts(now))
        item, env = random.choice(SIZE, 4, replace=False), random.integers(0, ENVS, 4)
        leaf = np.float32([3.0, 4.0, np.inf, random.exponential() * 9])
        tree = update(tree, jnp.int32(env), jnp.int32(item), jnp.float32(leaf), facts(now))
        for j in (0, 3):
            if plain[env[j], item[j]] > 0:
                plain[env[j], item[j]] = leaf[j]
        if i % 10 and i < 2 * SIZE // WRITTEN:
            continue
        age = (np.arange(SIZE) - int(now.oldest)) % SIZE
        allowed = np.where(age < int(now.complete), plain, 0.0)
        padded = np.pad(allowed, ((0, 0), (0, tree.leaf.shape[1] - SIZE))).reshape(
            ENVS, -1, priority_tree.WIDTH
        )
        np.testing.assert_array_equal(tree.leaf[:, :SIZE], plain)
        np.testing.assert_allclose(tree.total, padded.sum(axis=2), rtol=1e-6)
        assert float(tree.largest.max()) == plain.max()
        assert tree.count.tolist() == (allowed > 0).sum(axis=1).tolist()


def of_leaves(leaf: np.ndarray, allowed: Places) -> PriorityTree:
    tree = priority_tree.empty(*leaf.shape)
    nothing = Places(len(leaf), leaf.shape[1], jnp.int32(0), jnp.int32(0))
    items = jnp.arange(leaf.shape[1])
    return jax.jit(lambda leaf: priority_tree.write(tree, items, leaf, nothing, allowed))(np.float32(leaf))


@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(7, marks=pytest.mark.long), 300])
def test_draws_have_the_distribution_of_drawing_in_turn(size: int) -> None:
    # Two groups of two environments, whose last item may not be drawn; few items have most of the weight.
    leaf = np.full((4, size), 1e-3)
    leaf[:, [0, 2, size - 3]] = [[1.0, 2.0, 0.5], [4.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 6.0, 1.0]]
    leaf[:, -1] = 100.0
    places = Places(4, size, jnp.int32(0), jnp.int32(size - 1))
    tree, count = of_leaves(leaf, places), 8_000
    stride = tree.leaf.shape[1]
    keys, groups = jax.random.split(jax.random.key(0), count), Groups(total=2, here=2, first=0, each=2)
    draw = jax.jit(jax.vmap(lambda k: priority_tree.in_turn(tree, places, groups, k)))
    index, found, total = map(np.asarray, draw(keys))
    np.testing.assert_allclose(total[0], leaf[:, :-1].reshape(2, -1).sum(axis=1), rtol=1e-5)
    assert found.all()
    assert (index[..., 0] != index[..., 1]).all()
    for group in range(2):
        w = np.pad(leaf[2 * group : 2 * group + 2, :-1], ((0, 0), (0, stride - size + 1))).ravel()
        p = w / w.sum()
        pairs = p[:, None] * p[None] / (1 - p[:, None])
        np.fill_diagonal(pairs, 0.0)
        seen = np.zeros_like(pairs)
        np.add.at(seen, (index[:, group, 0], index[:, group, 1]), 1)
        assert seen[pairs == 0].sum() == 0
        # Rare pairs together are one cell.
        often = pairs * count > 5
        expected = np.append(pairs[often], pairs[~often].sum()) * count
        statistic = ((np.append(seen[often], seen[~often].sum()) - expected) ** 2 / expected).sum()
        degrees = len(expected) - 1
        assert statistic < degrees + 4 * (2 * degrees) ** 0.5


# All pairs are compared, twice; of few leaves there is a table; they are sorted.
@pytest.mark.parametrize(("tries", "leaves"), [(12, 2**20), (100, 2**20), (100, 2**10), (700, 2**20)])
def test_repetitions_are_left_out_and_the_order_stays(tries: int, leaves: int) -> None:
    index = np.random.default_rng(0).integers(-1, tries // 2, (2, tries))
    each = tries // 4
    found = jax.jit(lambda index: priority_tree._distinct(index, each, leaves))(jnp.asarray(index, jnp.int32))
    for row, once in zip(index.tolist(), found.tolist(), strict=True):
        expected = [x for x in dict.fromkeys(row) if x >= 0]
        assert once == (expected + [-1] * each)[:each]


@pytest.mark.slow
def test_a_group_without_a_leaf_finds_nothing_in_the_next() -> None:
    # Of so many blocks that sums of sums are padded.
    size = 20_000
    tree = priority_tree.empty(2, size)
    leaf = tree.leaf.at[1].set(1.0)
    sums = leaf.reshape(2, -1, priority_tree.WIDTH).sum(axis=2)
    tree = PriorityTree(leaf, sums, sums, (leaf > 0).sum(axis=1, dtype=jnp.int32))
    places, groups = Places(2, size, jnp.int32(0), jnp.int32(size)), Groups(2, 2, 0, 4)
    _, found, total = jax.jit(lambda: priority_tree.in_turn(tree, places, groups, jax.random.key(0)))()
    assert found.tolist() == [[False] * 4, [True] * 4]
    assert total[0] == 0


@pytest.mark.parametrize("count", [3, 48])
def test_leaves_whose_sum_is_infinite(count: int) -> None:
    leaf = np.zeros((1, 100), np.float32)
    leaf[0, :count] = 3e38
    places = Places(1, 100, jnp.int32(0), jnp.int32(100))
    tree = of_leaves(leaf, places)
    draw = jax.jit(jax.vmap(lambda key: priority_tree.in_turn(tree, places, Groups(1, 1, 0, 2), key)))
    index, found, _ = draw(jax.random.split(jax.random.key(0), 50))
    assert found.all()
    assert index.max() < count


def test_one_huge_leaf_hides_no_other_and_missing_ones_are_told() -> None:
    leaf = np.zeros((2, 40))
    leaf[0, :12], leaf[0, 3], leaf[1, [0, 39]] = 1e-4, 1e8, 2.0
    places = Places(2, 40, jnp.int32(0), jnp.int32(40))
    groups = Groups(total=2, here=2, first=0, each=12)
    draw = jax.jit(lambda tree, key: priority_tree.in_turn(tree, places, groups, key))
    index, found, _ = draw(of_leaves(leaf, places), jax.random.key(0))
    assert found.sum(axis=1).tolist() == [12, 2]
    assert int(index[0, 0]) == 3
    assert sorted(index[0].tolist()) == list(range(12))
    assert sorted(index[1, :2].tolist()) == [0, 39]


def many_leaves(envs: int, items: int) -> tuple[PriorityTree, Places]:
    """Some of them huge, so that draws are repeated and the last ones come from a race."""
    leaf = np.random.default_rng(1).exponential(size=(envs, items))
    leaf[::2, 5] = 1e7
    places = Places(envs, items, jnp.int32(3), jnp.int32(items - 4))
    return of_leaves(leaf, places), places


# Of a memory, from its priorities: test_replay_memory.py and test_sequence_replay.py.
@pytest.mark.long
def test_two_devices_draw_what_one_draws() -> None:
    (tree, places), key = many_leaves(4, 100), jax.random.key(3)
    of_all = Groups(total=4, here=4, first=0, each=5)
    together, all_found, _ = jax.jit(lambda: priority_tree.in_turn(tree, places, of_all, key))()
    assert all_found.all()

    @jax.jit
    def of_part(part: PriorityTree, first: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        groups = Groups(total=4, here=2, first=first, each=5)
        return priority_tree.in_turn(part, dataclasses.replace(places, envs=2), groups, key)

    for first in (0, 2):
        part = jax.tree.map(lambda x: x[first : first + 2], tree)  # noqa: B023
        index, found, _ = of_part(part, jnp.int32(first))
        np.testing.assert_array_equal(index, together[first : first + 2])
        assert found.all()


@pytest.mark.slow
def test_a_draw_computes_nothing_as_large_as_the_leaves() -> None:
    # Nor does the race, which has blocks of them.
    envs, items = 4, 60_000
    tree = jax.eval_shape(lambda: priority_tree.empty(envs, items))
    places = Places(envs, items, jnp.int32(3), jnp.int32(items - 4))
    groups = Groups(total=4, here=4, first=0, each=2)
    draw = jax.jit(lambda tree, key: priority_tree.in_turn(tree, places, groups, key))
    text = draw.lower(tree, jax.random.key(0)).compile().as_text()
    large = []
    for shape, operation in re.findall(r"= \w+\[([\d,]+)\]\S* ([\w-]+)\(", text):
        if math.prod(map(int, shape.split(","))) >= tree.leaf.shape[1]:
            large.append(operation)
    assert set(large) <= {"parameter", "bitcast", "get-tuple-element"}
