"""A policy as an ONNX graph, for runtimes without jax (docs/design/0039-onnx-from-primitives.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import installation
from jaxrl.config.errors import RunError
from jaxrl.evaluation.policy_function import ActingFunction, NotPolymorphic, flat
from jaxrl.inference import stablehlo
from jaxrl.inference.equivalence import Runner
from jaxrl.inference.onnx_conversion import add_program
from jaxrl.inference.onnx_graph import Graph, Unsupported, Value, computed_in, constant, element_type

FILE = "policy.onnx"
_ASKING = "`--format` (='onnx')"
# Supported since onnxruntime 1.17 (2024).
_OPSET = 20
_IR_VERSION = 9


def write(function: ActingFunction, folder: Path, batch: int | None) -> list[str]:
    """Writes the graph; returns the names of the files.

    Args:
      batch: a fixed batch size; None for any.

    Raises:
      ConfigError: the package onnx is missing.
      NotPolymorphic: the network cannot be exported for any batch size.
      RunError: it has a part that has no form in ONNX, or computes in bfloat16.
    """
    installation.require(_ASKING, "onnx", "onnx", "onnxruntime")
    import onnx

    inputs = function.inputs(function.example(1))
    graph = _graph(function, batch)
    size = batch or "batch"
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "policy",
            [_value_info(name, x, size) for name, x in inputs.items()],
            [_value_info(name, x, size) for name, x in outputs(function).items()],
            [onnx.numpy_helper.from_array(x, name) for name, x in graph.constants.items()],
        ),
        producer_name="jaxrl",
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    (folder / FILE).write_bytes(model.SerializeToString())
    return [FILE]


def _graph(function: ActingFunction, batch: int | None) -> Graph:
    """The graph of a policy: its parameters are known, the arguments are inputs."""
    states = [part.state for part in function.parts.values()]
    arguments: Any = jax.eval_shape(lambda: function.example(batch or 1))
    if batch is None:
        arguments = stablehlo.symbolic(function, arguments)
    run = jax.make_jaxpr(lambda states, *arguments: function.with_states(states)(*arguments))
    try:
        program = run(states, *arguments)
    except Exception as error:  # whatever a user's network raises when traced with an unknown size
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if batch is None:
            raise NotPolymorphic(text) from error
        raise RunError(f"the network cannot be exported to ONNX: {text}") from error
    known = [
        constant(x, f"{prefix}{jax.tree_util.keystr(path, simple=True, separator='.')}")
        for prefix, state in zip(function.parts, states, strict=True)
        for path, x in jax.tree.leaves_with_path(jax.device_get(state))
    ]
    inputs = function.inputs(arguments)
    graph = Graph(inputs["reset"].shape[0], "reset")
    given = [Value(x.shape, x.dtype, x.shape, name) for name, x in inputs.items()]
    names = outputs(function)
    try:
        found = add_program(graph, program, [*known, *given])
        for (name, x), result in zip(names.items(), found, strict=True):
            if computed_in(x.dtype) == x.dtype:
                graph.op("Identity", graph.full(result), result=name)
            else:
                graph.op("Cast", graph.full(result), to=element_type(x.dtype), result=name)
    except Unsupported as error:
        raise RunError(
            f"the network has no form in ONNX because of {error}; export it with --format=stablehlo"
        ) from error
    graph.keep_needed(list(names))
    return graph


def outputs(function: ActingFunction) -> dict[str, Any]:
    """Shapes by name, for one row. The carry is `next_carry`: outputs must not share names with inputs."""
    found = jax.eval_shape(function, *function.example(1))
    return {f"next_{name}" if name.startswith("carry.") else name: x for name, x in flat(found)}


def read(folder: Path, function: ActingFunction) -> Runner:
    """A function that runs the graph in a folder with onnxruntime."""
    installation.require(_ASKING, "onnx", "onnxruntime")
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / FILE, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]

    def run(*arguments: Any) -> dict[str, Any]:
        given = {name: np.asarray(x) for name, x in function.inputs(arguments).items()}
        found = dict(zip(names, session.run(names, given), strict=True))
        result: dict[str, Any] = {"distribution": {}, "carry": jax.tree.map(lambda x: x, arguments[1])}
        for name, x in found.items():
            *path, leaf = name.removeprefix("next_").split(".")
            node = result
            for key in path:
                node = node.setdefault(key, {})
            node[leaf] = x
        return result

    return run


def _value_info(name: str, x: Any, size: int | str) -> Any:
    import onnx

    return onnx.helper.make_tensor_value_info(name, element_type(x.dtype), [size, *x.shape[1:]])
