"""A policy as an ONNX graph, for runtimes without jax (docs/design/0039-onnx-from-primitives.md)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import unflatten_dict
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from jaxrl.config import installation
from jaxrl.config.errors import RunError
from jaxrl.evaluation.policy_function import ActingFunction, flat
from jaxrl.inference import formats
from jaxrl.inference.equivalence import Runner
from jaxrl.inference.onnx_graph import Graph, Unsupported, Value, computed_in, constant, element_type
from jaxrl.inference.onnx_primitives import ELEMENTWISE, STRUCTURAL, VIEWS, joined

FILE = "policy.onnx"
_ASKING = "`--format` (='onnx')"
# Supported since onnxruntime 1.17 (2024).
_OPSET = 20
_IR_VERSION = 9
# A loop is written out; a longer one would be a graph that nobody loads.
_LONGEST_LOOP = 100


def write(function: ActingFunction, folder: Path, batch: int | None) -> list[str]:
    """Writes the graph, for a batch size or any; returns the names of the files.

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
    arguments = formats.shapes(function, batch)
    with formats.traced("ONNX", batch):
        run = jax.make_jaxpr(lambda states, *arguments: function.with_states(states)(*arguments))
        program = run(states, *arguments)
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
            to = {} if computed_in(x.dtype) == x.dtype else {"to": element_type(x.dtype)}
            graph.op("Cast" if to else "Identity", graph.full(result), result=name, **to)
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
        leaves = [found.pop(f"next_{name}") for name, _ in flat(arguments[1], "carry")]
        carry = jax.tree.unflatten(jax.tree.structure(arguments[1]), leaves)
        return {"distribution": {}, **unflatten_dict(found, sep="."), "carry": carry}

    return run


def _value_info(name: str, x: Any, size: int | str) -> Any:
    import onnx

    return onnx.helper.make_tensor_value_info(name, element_type(x.dtype), [size, *x.shape[1:]])


def add_program(graph: Graph, program: ClosedJaxpr, arguments: Sequence[Value]) -> list[Value]:
    """Adds the nodes that compute the results of a program; what is known without inputs is computed here.

    Raises:
      Unsupported: a part of it has no form as nodes.
    """
    consts = [constant(x) for x in program.consts]
    inner = program.jaxpr
    values = dict(zip([*inner.constvars, *inner.invars], [*consts, *arguments], strict=True))

    def read(x: Any) -> Value:
        dtype = x.aval.dtype
        return constant(np.asarray(x.val, dtype)) if isinstance(x, Literal) else values[x]

    for equation in inner.eqns:
        found = _add(graph, equation, [read(x) for x in equation.invars])
        values.update(zip(equation.outvars, found, strict=True))
    return [read(x) for x in inner.outvars]


def _add(graph: Graph, equation: JaxprEqn, given: list[Value]) -> list[Value]:
    """Adds one primitive."""
    name = equation.primitive.name
    params = equation.params
    if name == "platform_index":
        # The form for other platforms than CPU is the plain one: a convolution as a convolution.
        platforms = params["platforms"]
        return [constant(np.int32(platforms.index(None) if None in platforms else 0))]
    inner = next((params[key] for key in ("jaxpr", "call_jaxpr") if key in params), None)
    program = None if inner is None else _closed(inner)
    results: list[Any] = [x.aval for x in equation.outvars]
    known = [x.known for x in given if x.known is not None]
    is_known = len(known) == len(given)
    shapes = [x.shape for x in (*given, *results)]
    is_static = all(isinstance(n, int) for shape in shapes for n in shape)
    # A function with its own derivative is no operation that can be called, and the batch size is not known.
    is_operation = name not in VIEWS and name != "dim_as_value" and "call_jaxpr" not in params
    if is_known and is_static and is_operation:
        return _computed(equation, [np.broadcast_to(x, y.shape) for x, y in zip(known, given, strict=True)])
    if name == "cond":
        which, *arguments = given
        if which.known is None:
            raise Unsupported("a branch that depends on inputs")
        branches = params["branches"]
        taken = branches[min(max(int(which.known), 0), len(branches) - 1)]
        return add_program(graph, _closed(taken), arguments)
    if name == "scan":
        return _loop(graph, equation, program, given)
    if program is not None:
        return add_program(graph, program, given)
    if name in VIEWS:
        return [VIEWS[name](graph, params, *given)]
    if name in ELEMENTWISE:
        if is_known:  # of a number of rows that is not: alike in all
            return _computed(equation, np.broadcast_arrays(*known))
        return [_elementwise(graph, equation, given)]
    if name not in STRUCTURAL:
        raise Unsupported(f"the operation {name}")
    found = STRUCTURAL[name](graph, params, *given)
    if isinstance(found, str):
        (x,) = results
        found = Value(x.shape, computed_in(x.dtype), x.shape, found)
    return found if isinstance(found, list) else [found]


def _computed(equation: JaxprEqn, arrays: Sequence[np.ndarray]) -> list[Value]:
    """The results of an equation as constants."""
    found = equation.primitive.bind(*arrays, **equation.params)
    arrays = found if equation.primitive.multiple_results else [found]
    results: list[Any] = [x.aval for x in equation.outvars]
    return [
        Value(out.shape, out.dtype, np.shape(x), known=np.asarray(x))
        for out, x in zip(results, arrays, strict=True)
    ]


def _elementwise(graph: Graph, equation: JaxprEqn, given: list[Value]) -> Value:
    name = equation.primitive.name
    named = graph.name_of if name == "convert_element_type" else graph.number
    params = {**equation.params, "dtype": given[-1].dtype}
    result = joined(graph, name, given) or ELEMENTWISE[name](graph, params, *map(named, given))
    out: Any = equation.outvars[0].aval
    sizes = itertools.zip_longest(*(x.stored[::-1] for x in given), fillvalue=1)
    stored = tuple(next((n for n in each if n != 1), 1) for each in sizes)[::-1]
    return Value(out.shape, computed_in(out.dtype), stored, result)


def _closed(program: Jaxpr | ClosedJaxpr) -> ClosedJaxpr:
    return ClosedJaxpr(program, []) if isinstance(program, Jaxpr) else program


def _loop(graph: Graph, equation: JaxprEqn, step: Any, given: list[Value]) -> list[Value]:
    """Adds each step of a loop of known length, from (constants, carry, rows) to (carry, rows)."""
    params = equation.params
    length = params["length"]
    if not isinstance(length, int) or length > _LONGEST_LOOP:
        raise Unsupported(f"a loop of {length} steps")
    # Not by their numbers, which versions of jax name differently: a step sees a row, with a dimension less.
    outvars: list[Any] = equation.outvars
    count = sum(x.aval.ndim == inner.ndim for x, inner in zip(outvars, step.out_avals, strict=True))
    rows = sum(len(x.shape) != inner.ndim for x, inner in zip(given, step.in_avals, strict=True))
    xs = given[len(given) - rows :]
    constants = given[: len(given) - rows - count]
    carry = given[len(constants) : len(constants) + count]
    results = []
    for i in range(length):
        at = length - 1 - i if params["reverse"] else i
        found = add_program(graph, step, [*constants, *carry, *(_row(graph, x, at) for x in xs)])
        carry = found[:count]
        results.append(found[count:])
    ordered = results[::-1] if params["reverse"] else results
    return [*carry, *(_stacked(graph, each) for each in zip(*ordered, strict=True))]


def _row(graph: Graph, x: Value, i: int) -> Value:
    if x.known is not None:
        return constant(np.broadcast_to(x.known, x.shape)[i])
    if x.shape[0] == 1:
        return graph.squeezed(x, [0])
    name = graph.op("Gather", graph.full(x), np.int64(i), axis=0)
    return Value(x.shape[1:], computed_in(x.dtype), x.shape[1:], name)


def _stacked(graph: Graph, rows: Sequence[Value]) -> Value:
    name = STRUCTURAL["stack"](graph, {"axis": 0}, *rows)
    assert isinstance(name, str)
    shape = (len(rows), *rows[0].shape)
    return Value(shape, computed_in(rows[0].dtype), shape, name)
