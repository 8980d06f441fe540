"""Runtimes of a policy's files: numpy, ONNX Runtime, or jax for StableHLO.

Each is a function of named arrays, `obs`, `carry.TRUNK.NAME`, `reset` and `action_mask`, all [B, ...], that
returns the action and the carry, by the same names.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config.errors import ConfigError
from jaxrl.inference.serving.arrays_of_spaces import ArraySpace, nest

Named = dict[str, np.ndarray]
Run = Callable[[Named], tuple[np.ndarray, Named]]
RUNTIMES = ("numpy", "onnx", "stablehlo")
# Custom calls are code that is looked up by name; these set a sharding, check a size, or are of LAPACK.
_HARMLESS_CALL = re.compile(r"Sharding|shape_assertion|lapack_\w+")


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
    """Reads a policy.

    Args:
      kind: of `RUNTIMES`.
      folder: of the model.
      arrays: of an observation.
      carry: names of the carry's arrays.

    Raises:
      ConfigError: the files are none that it runs.
    """
    loader = {"numpy": _numpy, "onnx": _onnx, "stablehlo": _stablehlo}[kind]
    return loader(folder, arrays, carry)


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
        raise ConfigError(
            f"{folder}/policy.stablehlo calls code outside of itself: {', '.join(sorted(calls))}"
        )

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
