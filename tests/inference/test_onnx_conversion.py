"""Programs of jax compute the same as ONNX graphs, for any number of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import export, lax

from jaxrl.inference.onnx import add_program
from jaxrl.inference.onnx_graph import Graph, Unsupported, Value, element_type

TABLE = jnp.arange(12.0).reshape(4, 3)
KERNEL = jnp.arange(-12.0, 12.0).reshape(3, 2, 1, 4) / 8


def step(total: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return total * 0.5 + x, total


# Of images [B, 6, 5, 2] in float32, places [B, 3] from -2 to 5 in int16, and truth values [B].
PROGRAMS: dict[str, Callable[..., Any]] = {
    "rows by index, with the rule for those outside": lambda image, place, flag: TABLE[place],
    "rows by index, moved inside": lambda image, place, flag: jnp.take(TABLE, place, axis=1, mode="clip"),
    "elements along an axis": lambda image, place, flag: jnp.take_along_axis(
        image[:, :, :3, 0], place[:, None, :], axis=1
    ),
    "windows": lambda image, place, flag: image[:, 1:5:2, ::-1, 1],
    "truth values": lambda image, place, flag: (
        jnp.where(flag[:, None], place > 1, place < 0),
        jnp.any(image > 1, axis=(1, 2)) ^ jnp.all(image < 2, axis=(1, 2)),
    ),
    "narrow integers": lambda image, place, flag: (place * 3 - 1) // 2,
    "sums": lambda image, place, flag: jnp.cumsum(image.mean((1, 3)), axis=1) + jnp.float32(image.shape[1]),
    "a constant": lambda image, place, flag: jnp.broadcast_to(TABLE[1], (image.shape[0], 3)),
    "rows of a multiple": lambda image, place, flag: jnp.concatenate(
        [image.reshape(-1, 10), jnp.ones((image.shape[0] * 6, 10))], axis=1
    ),
    "a loop": lambda image, place, flag: lax.scan(
        step, jnp.zeros((image.shape[0], 2)), image[:, :, 0].swapaxes(0, 1)
    ),
    "a loop from the end": lambda image, place, flag: lax.scan(
        step, jnp.zeros(image.shape[0]), image[:, :, 0, 0].T, reverse=True
    ),
    "a convolution": lambda image, place, flag: lax.conv_general_dilated(
        image,
        KERNEL,
        window_strides=(2, 1),
        padding=((1, 0), (2, 1)),
        rhs_dilation=(1, 2),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
    ),
    "a convolution used with two biases": lambda image, place, flag: [
        lax.conv_general_dilated(
            image[..., :1], KERNEL, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        + bias
        for bias in (jnp.arange(4.0), jnp.ones(4))
    ],
    "pools": lambda image, place, flag: (
        nn.max_pool(image, (3, 2), (2, 1), "SAME"),
        nn.avg_pool(image, (2, 3), (2, 2), "SAME"),
    ),
    "products": lambda image, place, flag: (
        jnp.einsum("bhwc,bxwc->bhx", image, image),
        image @ jnp.ones((2, 3)) @ jnp.ones((3, 1)),
    ),
    "functions": lambda image, place, flag: (
        nn.relu(image) + nn.gelu(image) + nn.softplus(image) + nn.elu(image) + lax.erf(image),
        jax.nn.softmax(image[:, 0, 0]),
        lax.rsqrt(1 + image**2) + image**3 + jnp.clip(image, -1, 1),
        jnp.round(image) + jnp.floor(image) % 3,
    ),
}


def converted(program: Callable[..., Any], arguments: list[Any]) -> list[np.ndarray]:
    """The results of a graph for any number of rows."""
    names = ("image", "place", "flag")
    (rows,) = export.symbolic_shape("rows")
    specs = [jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype) for x in arguments]
    graph = Graph(rows, "flag")
    inputs = [Value(x.shape, x.dtype, x.shape, name) for name, x in zip(names, specs, strict=True)]
    found = add_program(graph, jax.make_jaxpr(program)(*specs), inputs)
    results = [graph.full(x) for x in found]
    graph.keep_needed(results)
    info = onnx.helper.make_tensor_value_info
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "program",
            [
                info(n, element_type(x.dtype), ["rows", *x.shape[1:]])
                for n, x in zip(names, specs, strict=True)
            ],
            [onnx.helper.make_empty_tensor_value_info(name) for name in results],
            [onnx.numpy_helper.from_array(x, name) for name, x in graph.constants.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
        ir_version=9,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(results, dict(zip(names, arguments, strict=True)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_computes_what_jax_does(name: str) -> None:
    rng = np.random.default_rng(0)
    for rows in (1, 4):
        arguments = [
            rng.normal(size=(rows, 6, 5, 2)).astype(np.float32),
            rng.integers(-2, 6, (rows, 3)).astype(np.int16),
            rng.random(rows) < 0.5,
        ]
        expected = jax.tree.leaves(jax.jit(PROGRAMS[name])(*arguments))
        found = converted(PROGRAMS[name], arguments)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda image, place, flag: jnp.sort(image), "the operation sort"),
        (lambda image, place, flag: lax.cond(flag.any(), jnp.sin, jnp.cos, image), "a branch that depends"),
        (
            lambda image, place, flag: lax.fori_loop(0, 1000, lambda i, x: x + i, image),
            "a loop of 1000 steps",
        ),
        (lambda image, place, flag: image.astype(jnp.bfloat16), "an array of bfloat16"),
    ],
)
def test_what_has_no_form_is_named(program: Callable[..., Any], reason: str) -> None:
    arguments = [np.zeros((1, 6, 5, 2), np.float32), np.zeros((1, 3), np.int16), np.zeros(1, bool)]
    with pytest.raises(Unsupported, match=reason):
        converted(program, arguments)
