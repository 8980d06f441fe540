"""A policy as serialised StableHLO, which jax runs on any platform, or as named arrays, which numpy runs."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jax import export
from jax.extend.mlir.dialects import stablehlo as hlo

from jaxrl.config import ConfigError, installation
from jaxrl.config.errors import RunError
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, flat, normalized_names
from jaxrl.inference import numpy_cores, numpy_ensemble, numpy_policy
from jaxrl.inference.equivalence import Runner

STABLEHLO = "policy.stablehlo"
_PLATFORMS = ("cpu", "cuda", "tpu")


class NotPolymorphic(Exception):
    """A network can be written for a fixed batch size only. The message is one line."""


@contextlib.contextmanager
def traced(kind: str, batch: int | None) -> Iterator[None]:
    """Turns errors of a network that is traced into a NotPolymorphic, or a RunError with a batch size."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        if batch is None:
            raise NotPolymorphic(text) from error
        raise RunError(f"the network cannot be exported to {kind}: {text}") from error


def shapes(function: ActingFunction, batch: int | None) -> tuple[Any, ...]:
    """The arguments of a function as shapes, with a symbol for the batch size if that is None."""
    arguments: Any = jax.eval_shape(lambda: function.example(batch or 1))
    if batch is not None:
        return arguments
    (size,) = export.symbolic_shape("batch")
    key = arguments[-1:] if function.sample else ()
    rows = arguments[: len(arguments) - len(key)]
    return (*jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), rows), *key)


def write_stablehlo(function: ActingFunction, folder: Path, batch: int | None = None) -> list[str]:
    """Writes the program, for a batch size or any; returns the names of the files.

    It is in the form of StableHLO of twelve weeks ago unless that lacks an operation: jax takes the form of
    four weeks ago, and jax 0.10.2 cannot read what 0.11.2 writes so.

    Raises:
      NotPolymorphic: the network cannot be exported for any batch size.
      RunError: it cannot be exported at all.
    """
    with traced("StableHLO", batch):
        exported = export.export(jax.jit(function), platforms=_PLATFORMS)(*shapes(function, batch))
    version = hlo.get_version_from_compatibility_requirement(hlo.StablehloCompatibilityRequirement.WEEK_12)
    with contextlib.suppress(ValueError):
        program = hlo.serialize_portable_artifact_str(exported.mlir_module(), version)
        exported = dataclasses.replace(exported, mlir_module_serialized=program)
    (folder / STABLEHLO).write_bytes(exported.serialize(vjp_order=0))
    return [STABLEHLO]


def read_stablehlo(folder: Path) -> Runner:
    """A function that runs the program in a folder."""
    call = jax.jit(export.deserialize(bytearray((folder / STABLEHLO).read_bytes())).call)
    return lambda *arguments: jax.device_get(call(*arguments))


def arrays_by_name(function: ActingFunction) -> dict[str, np.ndarray]:
    """The arrays of each policy of a function, by the prefix of the policy and their names in it.

    Parameters are `params.*`; a normaliser has the mean and the standard deviation of each float part of the
    observation.
    """
    found: dict[str, Any] = {}
    for prefix, part in function.parts.items():
        arrays = dict(flat(jax.device_get(part.state.params), "params"))
        if part.state.obs_stats is not None:
            moments = jax.device_get(part.agent.moments(part.state))
            names = normalized_names(part.spec.observation_space)
            for name, (mean, std) in zip(names, moments, strict=True):
                arrays |= {f"normalizer.{name}.mean": mean, f"normalizer.{name}.std": std}
        found |= {f"{prefix}{name}": np.ascontiguousarray(x) for name, x in arrays.items()}
    return found


def write_arrays(function: ActingFunction, folder: Path, kind: str) -> list[str]:
    """Writes the arrays and the modules that run them; returns the files' names.

    Of the kinds numpy and safetensors the latter is a ConfigError without the package.
    """
    arrays = arrays_by_name(function)
    if kind == "numpy":
        file = "policy.npz"
        with open(folder / file, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
    else:
        try:
            from safetensors.numpy import save_file
        except ImportError as error:
            raise ConfigError(
                "`--format` (='safetensors') needs the package safetensors: "
                f"{installation.command('export')}; --format=numpy needs nothing more"
            ) from error
        file = "policy.safetensors"
        save_file(arrays, folder / file)
    modules = [numpy_policy, numpy_cores, *([numpy_ensemble] if function.mean else [])]
    sources = [Path(str(module.__file__)) for module in modules]
    return [file, *(shutil.copyfile(path, folder / path.name).name for path in sources)]


def read_arrays(folder: Path, function: ActingFunction) -> tuple[Runner, str]:
    """(function that runs the arrays of a folder, name of its runtime).

    Built-in networks run with numpy alone, others in jax with the arrays read back.
    """
    if all(part.agent.architecture() is not None for part in function.parts.values()):
        return (numpy_ensemble.NumpyEnsemble if function.mean else numpy_policy.NumpyPolicy)(folder), "numpy"
    parts = function.parts.items()
    states = [_rebuild(numpy_policy.read_arrays(folder, prefix), part) for prefix, part in parts]
    rebuilt = jax.jit(function.with_states(states))
    return lambda *arguments: jax.device_get(rebuilt(*arguments)), "jax"


def _rebuild(arrays: dict[str, np.ndarray], function: PolicyFunction) -> Any:
    params = unflatten_dict({name: jnp.asarray(x) for name, x in arrays.items()}, sep=".")["params"]
    moments = None
    if function.state.obs_stats is not None:
        names = normalized_names(function.spec.observation_space)
        one = lambda name, part: jnp.asarray(arrays[f"normalizer.{name}.{part}"])  # noqa: E731
        moments = [(one(name, "mean"), one(name, "std")) for name in names]
    return function.agent.frozen(params, moments)
