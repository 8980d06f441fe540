"""Graph layers against plain loops over nodes and edges, with padding, permutation and sorted kinds."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxrl.networks.graph_layers import (
    GraphAttention,
    GraphConvolution,
    GraphTransformer,
    KindDense,
    Neighbours,
    neighbours_of,
)

WIDTH, HEADS, KINDS, RELATIONS, NODES = 8, 2, 3, 2, 7
SIZE = WIDTH // HEADS


def example() -> tuple[np.ndarray, np.ndarray, list[tuple[int, int, int]]]:
    """Nodes sorted by kind, their kinds, and edges (from, to, kind); 6 has none, and 5 hears nothing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NODES, WIDTH)).astype(np.float32)
    kinds = np.array([0, 0, 0, 1, 1, 2, 2])
    edges = [
        (0, 1, 0),
        (1, 0, 1),
        (2, 1, 1),
        (3, 1, 0),
        (4, 3, 1),
        (5, 3, 0),
        (1, 4, 0),
        (5, 2, 1),
        (0, 2, 1),
    ]
    return x, kinds, edges


def table(edges: list[tuple[int, int, int]], count: int = NODES) -> Neighbours:
    source, target, kind = np.array(edges).T
    return neighbours_of(source, target, kind, count)


def spread(params, seed: int = 1):
    """Parameters none of which is zero or one, so that each matters."""
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(tree, [jnp.asarray(rng.normal(size=x.shape) / 2, jnp.float32) for x in leaves])


def gcn_by_loops(p, x, edges):
    heard = [[s for s, t, _ in edges if t == node] + [node] for node in range(len(x))]
    out = []
    for node in range(len(x)):
        total = np.zeros(WIDTH)
        for other in heard[node]:
            total += x[other] / math.sqrt(len(heard[node]) * len(heard[other]))
        out.append(np.maximum(total @ p["kernel"] + p["bias"], 0))
    return np.array(out)


def gat_by_loops(p, x, edges):
    dense = p["Dense_0"]
    h = (x @ dense["kernel"] + dense["bias"]).reshape(len(x), HEADS, SIZE)
    out = np.zeros((len(x), HEADS, SIZE))
    for node in range(len(x)):
        heard = [node] + [s for s, t, _ in edges if t == node]
        for head in range(HEADS):
            raw = [p["source"][head] @ h[s, head] + p["target"][head] @ h[node, head] for s in heard]
            score = np.array([e if e > 0 else 0.2 * e for e in raw])
            share = np.exp(score) / np.exp(score).sum()
            y = sum(a * h[s, head] for a, s in zip(share, heard, strict=True))
            out[node, head] = np.where(y > 0, y, np.expm1(y))
    return out.reshape(len(x), WIDTH)


def gelu(x):
    # The approximation by tanh, which flax takes.
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def hgt_by_loops(p, x, kinds, edges):
    def linear(name, node, row):
        return row @ p[name]["kernel"][kinds[node]] + p[name]["bias"][kinds[node]]

    out = x.astype(np.float64).copy()
    for node in range(len(x)):
        heard = [(s, r) for s, t, r in edges if t == node]
        if not heard:
            continue
        query = linear("query", node, x[node]).reshape(HEADS, SIZE)
        summed = np.zeros((HEADS, SIZE))
        for head in range(HEADS):
            score, told = [], []
            for s, r in heard:
                key = linear("key", s, x[s]).reshape(HEADS, SIZE)[head]
                value = linear("value", s, x[s]).reshape(HEADS, SIZE)[head]
                prior = p["prior"][kinds[s], r, kinds[node], head]
                score.append(key @ p["attention"][r, head] @ query[head] * prior / math.sqrt(SIZE))
                told.append(value @ p["message"][r, head])
            summed[head] = scipy.special.softmax(score) @ np.array(told)
        out[node] += linear("out", node, gelu(summed.reshape(-1)))
    return out


def run(name, params, x, kinds, edges: Neighbours):
    """The layer `name` on all nodes."""
    if name == "hgt":
        layer = GraphTransformer(WIDTH, HEADS, KINDS, RELATIONS)

        def apply(module):
            given = kinds if isinstance(kinds, tuple) else jnp.asarray(kinds)
            of = np.repeat(np.arange(len(kinds)), kinds) if isinstance(kinds, tuple) else np.asarray(kinds)
            memory = module.memory(x, given)
            return module(x, given, jnp.asarray(of), edges, memory, jnp.asarray(of[np.asarray(edges.index)]))

        if params is None:
            return jax.eval_shape(lambda: layer.init(jax.random.key(0), method=apply))["params"]
        return jax.jit(lambda params: layer.apply({"params": params}, method=apply))(params)
    layer = GraphAttention(WIDTH, HEADS) if name == "gat" else GraphConvolution(WIDTH)
    if params is None:
        return jax.eval_shape(lambda: layer.init(jax.random.key(0), x, edges))["params"]
    return jax.jit(lambda params, x: layer.apply({"params": params}, x, edges))(params, x)


LOOPS = {
    "gcn": lambda p, x, kinds, edges: gcn_by_loops(p, x, edges),
    "gat": lambda p, x, kinds, edges: gat_by_loops(p, x, edges),
    "hgt": hgt_by_loops,
}


@pytest.fixture(scope="module")
def parameters():
    x, kinds, edges = example()
    return {name: spread(run(name, None, x, kinds, table(edges))) for name in LOOPS}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_layers_are_what_loops_compute(name, parameters) -> None:
    x, kinds, edges = example()
    expected = LOOPS[name](jax.tree.map(np.asarray, parameters[name]), x, kinds, edges)
    found = run(name, parameters[name], jnp.asarray(x), kinds, table(edges))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_padding_changes_nothing_not_even_the_gradient(name, parameters) -> None:
    """A padded node may hold NaN, padded edges may lead anywhere."""
    x, kinds, edges = example()
    short = replace(table(edges), reverse=None)
    longer = replace(
        short,
        index=np.pad(short.index, ((0, 2), (0, 1)), constant_values=NODES),  # of nodes that hold NaN
        mask=np.pad(short.mask, ((0, 2), (0, 1))),
        kinds=(*short.kinds, 0),
    )
    longer = replace(longer, index=np.where(longer.mask, longer.index, NODES))
    padded, padded_kinds = np.pad(x, ((0, 2), (0, 0)), constant_values=np.nan), np.pad(kinds, (0, 2))

    def loss(params, x, kinds, edges):
        out = run(name, params, jnp.asarray(x), kinds, edges)[:NODES]
        return jnp.sum(out * jnp.arange(out.size, dtype=out.dtype).reshape(out.shape)), out

    _, before = loss(parameters[name], x, kinds, short)
    _, after = loss(parameters[name], padded, padded_kinds, longer)
    # Sums of another length are added in another order, which depends on the processor.
    np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-6)
    finite = np.nan_to_num(padded, nan=3.0)  # NaN times zero is NaN in a weight's gradient
    gradients = [
        jax.grad(lambda *a: loss(*a)[0])(parameters[name], *given)
        for given in ((x, kinds, short), (finite, padded_kinds, longer))
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), *gradients)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_the_order_of_nodes_and_edges_does_not_matter(name, parameters) -> None:
    x, kinds, edges = example()
    order = np.random.default_rng(3).permutation(NODES)
    place = np.argsort(order)
    moved = [(int(place[s]), int(place[t]), r) for s, t, r in reversed(edges)]
    before = run(name, parameters[name], jnp.asarray(x), kinds, table(edges))
    after = run(name, parameters[name], jnp.asarray(x[order]), kinds[order], table(moved))
    np.testing.assert_allclose(after, np.asarray(before)[order], rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_a_fixed_table_has_the_gradient_of_any_other(parameters) -> None:
    x, kinds, edges = example()
    fixed = table(edges)
    weight = jnp.asarray(np.random.default_rng(4).normal(size=(NODES, WIDTH)), jnp.float32)

    def gradient(neighbours):
        out = lambda x: jnp.sum(run("hgt", parameters["hgt"], x, kinds, neighbours) * weight)  # noqa: E731
        return jax.jit(jax.grad(out))(jnp.asarray(x))

    found = gradient(fixed)
    np.testing.assert_allclose(found, gradient(replace(fixed, reverse=None)), rtol=1e-5, atol=1e-6)
    assert np.any(np.asarray(found) != np.asarray(weight))


@pytest.mark.slow
def test_counts_of_sorted_kinds_are_the_same_as_kinds(parameters) -> None:
    x, kinds, edges = example()
    counts = tuple(np.bincount(kinds).tolist())
    found = [run("hgt", parameters["hgt"], jnp.asarray(x), k, table(edges)) for k in (kinds, counts)]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    dense = KindDense(3, KINDS)
    params = spread(jax.eval_shape(lambda: dense.init(jax.random.key(0), x, counts)))
    (kernel, bias) = (np.asarray(params["params"][name]) for name in ("kernel", "bias"))
    expected = [row @ kernel[kind] + bias[kind] for row, kind in zip(x, kinds, strict=True)]
    found = jax.jit(lambda params: dense.apply(params, x, counts))(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_each_edge_is_in_the_table_once() -> None:
    _, _, edges = example()
    found = table(edges)
    index, mask = np.asarray(found.index), np.asarray(found.mask)
    listed = [(int(index[p, d]), p, found.kinds[d]) for p, d in zip(*np.nonzero(mask), strict=True)]
    assert sorted(listed) == sorted(edges)
