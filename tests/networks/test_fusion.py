"""Fusions of the parts of an observation beside loops over units and heads, and planned convolutions."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxrl.networks.architectures import _convolutions
from jaxrl.networks.fusion import FUSIONS

SIZE, HEADS, ROWS = 8, 4, 3
PARTS = [
    np.random.default_rng(i).normal(size=(ROWS, width)).astype(np.float32) for i, width in enumerate((2, 5))
]


def fused(name: str) -> tuple[np.ndarray, list[Any]]:
    """(features, its dense layers as functions, in the order of their use), with biases that matter."""
    module = FUSIONS[name](SIZE, "tanh", jnp.float32)
    given = [jnp.asarray(part) for part in PARTS]
    params = jax.jit(module.init)(jax.random.key(0), given)["params"]
    rng = np.random.default_rng(9)
    params = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), params)
    layers = [params[f"Dense_{i}"] for i in range(len(params))]
    dense = [lambda x, p=p: np.float64(x) @ np.float64(p["kernel"]) + np.float64(p["bias"]) for p in layers]
    return np.asarray(jax.jit(module.apply)({"params": params}, given)), dense


def test_concatenation() -> None:
    found, (dense,) = fused("concatenate")
    np.testing.assert_allclose(found, np.tanh(dense(np.concatenate(PARTS, axis=-1))), atol=1e-5)


def test_each_unit_of_a_part_has_a_gate_of_its_own() -> None:
    """Arevalo et al. 2017, section 3: the sum of z_i * tanh(W_i x_i), z_i = sigmoid(V_i [x_1, x_2])."""
    found, (gates, *seen) = fused("gated")
    every = scipy.special.expit(gates(np.concatenate(PARTS, axis=-1)))
    expected = np.zeros((ROWS, SIZE))
    for i, (part, dense) in enumerate(zip(PARTS, seen, strict=True)):
        expected += every[:, i * SIZE : (i + 1) * SIZE] * np.tanh(dense(part))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_parts_attend_to_each_other() -> None:
    """Vaswani et al. 2017, equation 1, with a residual, then the mean over parts."""
    found, dense = fused("attention")
    width = SIZE // HEADS
    for row in range(ROWS):
        x = np.stack([np.tanh(dense[i](part[row])) for i, part in enumerate(PARTS)])
        query, key, value = (dense[2 + i](x).reshape(len(x), HEADS, width) for i in range(3))
        heard = np.zeros((len(x), HEADS, width))
        for p in range(len(x)):
            for head in range(HEADS):
                score = np.array([query[p, head] @ key[q, head] for q in range(len(x))]) / math.sqrt(width)
                heard[p, head] = scipy.special.softmax(score) @ value[:, head]
        expected = (x + dense[5](heard.reshape(len(x), SIZE))).mean(axis=0)
        np.testing.assert_allclose(found[row], expected, atol=1e-4)


def test_strides_follow_what_is_left_of_a_picture() -> None:
    # 17 -> (17 - 3) / 2 + 1 = 8 -> (8 - 3) // 2 + 1 = 3 -> 1 -> 1: a kernel is never larger than that.
    found = _convolutions((4, 8, 8, 8), (17, 20, 3))
    assert found == ((4, 3, 2), (8, 3, 2), (8, 3, 1), (8, 1, 1))
