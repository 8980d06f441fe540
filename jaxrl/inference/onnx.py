"""A policy as an ONNX graph, for runtimes without jax.

The graph is built layer by layer from what the network describes, so that names and operators are the
expected ones; a user's own network has no such description (docs/design/0008-onnx-by-hand.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import installation
from jaxrl.config.errors import ConfigError, RunError
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, flat
from jaxrl.inference import arrays, onnx_ensemble
from jaxrl.inference.equivalence import Runner
from jaxrl.inference.onnx_graph import Graph, element_type

FILE = "policy.onnx"
# Supported since onnxruntime 1.17 (2024).
_OPSET = 20
_IR_VERSION = 9


def write(function: ActingFunction, folder: Path, batch: int | None) -> list[str]:
    """Writes the graph.

    Args:
      function: the policy, or several, greedy.
      folder: where to.
      batch: a fixed batch size; None for any.

    Returns:
      The names of the files.

    Raises:
      ConfigError: the package onnx is missing.
      RunError: a part of the network is not built in, or it computes in bfloat16.
    """
    try:
        import onnx
    except ImportError as error:
        raise _missing_package() from error
    graphs = {prefix: _graph(part) for prefix, part in function.parts.items()}
    inputs = function.inputs(function.example(1))
    graph = graphs[""] if function.mean is None else onnx_ensemble.join_graphs(graphs, function.mean)
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


def _graph(function: PolicyFunction) -> Graph:
    """The graph of one policy."""
    network = function.agent.architecture()
    if network is None:
        raise RunError(
            "ONNX is written for the built-in networks in float32, without a central value; "
            "export this one with --format=stablehlo"
        )
    graph = Graph(arrays.of_policy(function), function.agent.normalize_config.clip_observations)
    graph.policy(network, masked=function.spec.has_action_mask)
    return graph


def outputs(function: ActingFunction) -> dict[str, Any]:
    """Shapes by name, for one row. The carry is `next_carry`: outputs must not share names with inputs."""
    found = jax.eval_shape(function, *function.example(1))
    return {f"next_{name}" if name.startswith("carry.") else name: x for name, x in flat(found)}


def read(folder: Path, function: ActingFunction) -> Runner:
    """A function that runs the graph in a folder with onnxruntime."""
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing_package() from error
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


def _missing_package() -> ConfigError:
    text = "`--format` (='onnx') needs the packages onnx and onnxruntime"
    return ConfigError(f"{text}: {installation.command('onnx')}")
