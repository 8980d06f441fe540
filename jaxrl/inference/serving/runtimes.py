"""Runtimes of a policy's files, numpy, ONNX Runtime, or jax for StableHLO, and how fast they are.

Each is a function of named arrays, `obs`, `carry.TRUNK.NAME`, `reset` and `action_mask`, all [B, ...], that
returns the action and the carry, by the same names.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config.errors import ConfigError
from jaxrl.inference.serving.arrays_of_spaces import ArraySpace, ModelFacts, ObservationReader, nest

_SIZES = (1, 2, 8, 32, 128, 512)
_CALLS = 15  # that are timed of each size, after one
_DRAWS, _WINDOWS = 8, 8  # comparisons of a size with the largest: samples, and parts of each
# Custom calls are code that is looked up by name; these set a sharding, check a size, or are of LAPACK.
_HARMLESS_CALL = re.compile(r"Sharding|shape_assertion|lapack_\w+")

Named = dict[str, np.ndarray]
Run = Callable[[Named], tuple[np.ndarray, Named]]


def available(folder: Path, description: Mapping[str, Any]) -> list[str]:
    """The runtimes whose files and packages are there, the fastest to start first."""
    found = []
    if description.get("architecture") is not None:
        found.append("numpy")
    if (folder / "policy.onnx").exists() and importlib.util.find_spec("onnxruntime"):
        found.append("onnx")
    if (folder / "policy.stablehlo").exists() and importlib.util.find_spec("jax"):
        found.append("stablehlo")
    return found


def load(kind: str, folder: Path, arrays: tuple[ArraySpace, ...], carry: tuple[str, ...]) -> Run:
    """Reads a model's policy, with the arrays of an observation and the names of the carry's.

    Raises:
      ConfigError: the files are none that a runtime of this kind runs.
    """
    return {"numpy": _numpy, "onnx": _onnx, "stablehlo": _stablehlo}[kind](folder, arrays, carry)


def _numpy(folder: Path, arrays: tuple[ArraySpace, ...], carry: tuple[str, ...]) -> Run:
    from jaxrl.inference.numpy_policy import NumpyPolicy

    policy = NumpyPolicy(folder)
    trunks = tuple(policy.initial_carry(1))
    places = [(name, *name.split(".")[1:]) for name in carry]  # carry.TRUNK.STATE

    def run(given: Named) -> tuple[np.ndarray, Named]:
        before: dict[str, Named] = {trunk: {} for trunk in trunks}
        for name, trunk, state in places:
            before[trunk][state] = given[name]
        out = policy(nest(given, arrays), before, given["reset"], given.get("action_mask"))
        return out["action"], {name: out["carry"][trunk][state] for name, trunk, state in places}

    return run


def _onnx(folder: Path, arrays: tuple[ArraySpace, ...], carry: tuple[str, ...]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # Errors: unused constants of a policy are nothing to warn of.
    # Threads of its own cost more than they give with networks of this size, and spin between requests.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content = (folder / "policy.onnx").read_bytes()  # In memory: it cannot name other files beside itself.
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    inputs = {x.name for x in session.get_inputs()}
    outputs = ["action", *(f"next_{name}" for name in carry)]

    def run(given: Named) -> tuple[np.ndarray, Named]:
        action, *after = session.run(outputs, {name: x for name, x in given.items() if name in inputs})
        return action, dict(zip(carry, after, strict=True))

    return run


def _stablehlo(folder: Path, arrays: tuple[ArraySpace, ...], carry: tuple[str, ...]) -> Run:
    import jax
    from jax import export

    program = export.deserialize(bytearray((folder / "policy.stablehlo").read_bytes()))
    calls = set(re.findall(r"custom_call\s+@([\w.$]+)", program.mlir_module()))
    if not all(_HARMLESS_CALL.fullmatch(call) for call in calls):
        named = ", ".join(sorted(calls))
        raise ConfigError(f"{folder}/policy.stablehlo calls code outside of itself: {named}")

    def act(flat: list[Any]) -> tuple[Any, list[Any]]:
        # In the order of the tree that was exported, so that a carry of any form, also an empty one, fits.
        arguments, _ = jax.tree.unflatten(program.in_tree, flat)
        out = program.call(*arguments)
        return out["action"], jax.tree.leaves(out["carry"])

    compiled = jax.jit(act)
    names = [*(array.name for array in arrays), *carry, "reset"]

    def run(given: Named) -> tuple[np.ndarray, Named]:
        masks = [given["action_mask"]] if "action_mask" in given else []
        action, after = jax.device_get(compiled([*(given[name] for name in names), *masks]))
        return np.asarray(action), dict(zip(carry, map(np.asarray, after), strict=True))

    return run


@dataclasses.dataclass(frozen=True)
class RuntimeTiming:
    """A runtime's speed: seconds of a pass by batch size. All sizes give a row the same bits."""

    kind: str
    run: Run
    seconds: Mapping[int, float]

    @property
    def cost(self) -> float:
        """Seconds of a row that comes alone, and of one in a full batch, together."""
        largest = max(self.seconds)
        return self.seconds[min(self.seconds)] + self.seconds[largest] / largest

    def __str__(self) -> str:
        shown = ", ".join(f"{1e3 * seconds:.3f} ms for {n}" for n, seconds in self.seconds.items())
        return f"{self.kind}: {shown}"


def timed(kind: str, run: Run, facts: ModelFacts, reader: ObservationReader, largest: int) -> RuntimeTiming:
    """Times the sizes at which each row has the bits that it has in the largest batch, at any place in it.

    Libraries multiply a matrix by one vector in another order than by several, for instance.
    """
    rng = np.random.default_rng(0)
    if kind == "stablehlo" and facts.fixed_batch:
        sizes = [facts.fixed_batch]
    else:
        sizes = [*(n for n in _SIZES if n < largest), largest]
    kept = set(sizes)
    for _ in range(_DRAWS):
        whole = draw(facts, reader, sizes[-1], rng)
        reference = run(whole)
        order = rng.permutation(sizes[-1])
        if not _same(run({name: x[order] for name, x in whole.items()}), reference, order):
            # No batch gives a row the same bits everywhere: one row at a time, or that size.
            kept = {sizes[0]}
            break
        for size in sizes[:-1]:
            for rows in np.array_split(order[: _WINDOWS * size], min(_WINDOWS, sizes[-1] // size)):
                window = rows[:size]
                part = {n: x[window] for n, x in whole.items()} if size in kept else {}
                if part and not _same(run(part), reference, window):
                    kept.remove(size)
    seconds = {size: _seconds(run, {n: x[:size] for n, x in whole.items()}) for size in sorted(kept)}
    return RuntimeTiming(kind, run, seconds)


def _same(found: tuple[np.ndarray, Named], reference: tuple[np.ndarray, Named], rows: np.ndarray) -> bool:
    """True if `found` is the `rows` of `reference`, bit for bit."""
    action, carry = found
    pairs = [(action, reference[0]), *((x, reference[1][name]) for name, x in carry.items())]
    return all(np.array_equal(ours, theirs[rows]) for ours, theirs in pairs)


def draw(facts: ModelFacts, reader: ObservationReader, size: int, rng: np.random.Generator) -> Named:
    """Random inputs of a model, `size` rows: observations, carries in [-1, 1), a fifth of resets."""
    given = reader.random_observations(size, rng)
    for name, shape in facts.carry.items():
        given[name] = rng.uniform(-1, 1, (size, *shape)).astype(facts.carry_dtypes[name])
    given["reset"] = rng.random(size) < 0.2
    if facts.mask_size is not None:
        given["action_mask"] = np.ones((size, facts.mask_size), bool)
    return given


def _seconds(run: Run, given: Named) -> float:
    """The median of `_CALLS` passes."""
    times = []
    for _ in range(_CALLS + 1):
        start = time.perf_counter()
        run(given)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))
