"""A policy as serialised StableHLO: one file that jax alone can run, on any platform."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
from jax import export
from jax.extend.mlir.dialects import stablehlo as hlo

from jaxrl.config.errors import RunError
from jaxrl.evaluation.policy_function import ActingFunction, NotPolymorphic
from jaxrl.inference.equivalence import Runner

FILE = "policy.stablehlo"
PLATFORMS = ("cpu", "cuda", "tpu")


def write(function: ActingFunction, folder: Path, batch: int | None = None) -> list[str]:
    """Writes the program; returns the names of the files.

    Args:
      batch: a fixed batch size; None for any.

    Raises:
      NotPolymorphic: the network cannot be exported for any batch size.
      RunError: it cannot be exported at all.
    """
    example = function.example(batch or 1)
    arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)
    if batch is None:
        arguments = symbolic(function, arguments)
    try:
        exported = export.export(jax.jit(function), platforms=PLATFORMS)(*arguments)
    except Exception as error:  # whatever a user's network raises when traced with an unknown size
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if batch is None:
            raise NotPolymorphic(text) from error
        raise RunError(f"the network cannot be exported to StableHLO: {text}") from error
    (folder / FILE).write_bytes(_for_older_jax(exported).serialize(vjp_order=0))
    return [FILE]


def _for_older_jax(exported: export.Exported) -> export.Exported:
    """In the form of StableHLO of twelve weeks ago; as it is, if that lacks an operation.

    jax takes the form of four weeks ago, and jax 0.10.2 cannot read what 0.11.2 writes so.
    """
    version = hlo.get_version_from_compatibility_requirement(hlo.StablehloCompatibilityRequirement.WEEK_12)
    try:
        program = hlo.serialize_portable_artifact_str(exported.mlir_module(), version)
    except ValueError:
        return exported
    return dataclasses.replace(exported, mlir_module_serialized=program)


def symbolic(function: ActingFunction, arguments: Any) -> Any:
    """Replaces the batch size by a symbolic one."""
    (size,) = export.symbolic_shape("batch")

    def unknown(x: Any) -> Any:
        return jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype)

    key = arguments[-1:] if function.sample else ()
    return (*jax.tree.map(unknown, arguments[: len(arguments) - len(key)]), *key)


def read(folder: Path) -> Runner:
    """A function that runs the program in a folder."""
    call = jax.jit(export.deserialize(bytearray((folder / FILE).read_bytes())).call)
    return lambda *arguments: jax.device_get(call(*arguments))
