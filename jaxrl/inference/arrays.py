"""A policy as named arrays, in the file format of numpy or safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError, installation
from jaxrl.evaluation.policy_function import ActingFunction, PolicyFunction, flat, normalized_names
from jaxrl.inference import numpy_cores, numpy_ensemble, numpy_policy
from jaxrl.inference.equivalence import Runner


def arrays_by_name(function: ActingFunction) -> dict[str, np.ndarray]:
    """The arrays of each policy of a function, by the prefix of the policy and their names in it."""
    return {
        f"{prefix}{name}": x for prefix, part in function.parts.items() for name, x in of_policy(part).items()
    }


def of_policy(function: PolicyFunction) -> dict[str, np.ndarray]:
    """Parameters as `params.*`; mean and standard deviation of each float part of the observation."""
    arrays = dict(flat(jax.device_get(function.state.params), "params"))
    if function.state.obs_stats is not None:
        moments = jax.device_get(function.agent.moments(function.state))
        names = normalized_names(function.spec.observation_space)
        for name, (mean, std) in zip(names, moments, strict=True):
            arrays |= {f"normalizer.{name}.mean": mean, f"normalizer.{name}.std": std}
    return {name: np.ascontiguousarray(x) for name, x in arrays.items()}


def write(function: ActingFunction, folder: Path, kind: str) -> list[str]:
    """Writes the arrays and the modules that run them with numpy; returns the names of the files.

    Raises:
      ConfigError: the package safetensors is missing.
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
    runtime = [Path(str(module.__file__)) for module in modules]
    for path in runtime:
        shutil.copyfile(path, folder / path.name)
    return [file, *(path.name for path in runtime)]


def read(folder: Path, function: ActingFunction) -> tuple[Runner, str]:
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
    params: dict[str, Any] = {}
    for name, x in arrays.items():
        kind, *path, leaf = name.split(".")
        if kind == "params":
            node = params
            for key in path:
                node = node.setdefault(key, {})
            node[leaf] = jnp.asarray(x)
    moments = None
    if function.state.obs_stats is not None:
        names = normalized_names(function.spec.observation_space)
        one = lambda name, part: jnp.asarray(arrays[f"normalizer.{name}.{part}"])  # noqa: E731
        moments = [(one(name, "mean"), one(name, "std")) for name in names]
    return function.agent.frozen(params, moments)
