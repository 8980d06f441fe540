"""Runs made of parameters from a file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import Config, ConfigError, installation
from jaxrl.config.data_files import open_regular
from jaxrl.config.errors import did_you_mean
from jaxrl.evaluation.policy_function import flat, normalized_names
from jaxrl.runs.checkpoint import state_arrays
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import write_run
from jaxrl.training.progress import Progress

# Places of a state.
_PARAMS = "learner/policy/params/"
_STATS = "learner/policy/obs_stats/"
# A file says nothing of how many observations its moments come from; new ones must not displace them at once.
_ROWS_OF_MOMENTS = 1e6


def from_file(file: str, config: Config, workdir: str) -> int:
    """Starts a run, not trained yet, with the parameters of a file; returns how many arrays it gave.

    Args:
      file: .npz or .safetensors with arrays named as `jaxrl export` names them: `params.PATH`, and
        `normalizer.OBS.mean` and `.std` if observations are normalised.
      config: of the run; resolved for one device.

    Raises:
      ConfigError: the file cannot be read, or its names and shapes do not match the network.
    """
    given = _read(file)
    if (RunFolder(os.path.expanduser(workdir)).path / "config.json").exists():
        raise ConfigError(f"`--workdir` (={workdir!r}) holds a run already: name another folder")
    runtime = Assembly.build(config).runtime
    learning = runtime.learning
    state = learning.initial_state()
    trees = state_arrays.fields(state)
    own = {name: np.asarray(x) for name, x in state_arrays.flat(state_arrays.to_arrays(state)).items()}
    acting = [name for name, _ in flat(runtime.agent.acting_params(state.learner.policy.params))]
    wanted = {f"params.{name}": f"{_PARAMS}{name.replace('.', '/')}" for name in acting}
    observed = runtime.spec.observation_space
    moments = normalized_names(observed) if config.normalize.observations else []
    shapes = {name: own[place].shape for name, place in wanted.items()}
    for i, name in enumerate(moments):
        shapes |= {f"normalizer.{name}.{what}": own[f"{_STATS}mean/{i}"].shape for what in ("mean", "std")}
    _require_same(given, shapes, file)
    own |= {place: np.asarray(given[name], np.float32) for name, place in wanted.items()}
    _take_moments(given, moments, own)
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), trees)
    state = type(state)(**{name: state_arrays.rebuild(name, tree, own) for name, tree in abstract.items()})
    progress = Progress(learning.empty_interval(), iteration=int(state.iteration))
    write_run(workdir, config, learning, state, progress, {})
    return len(shapes)


def _take_moments(given: Mapping[str, Any], names: Sequence[str], own: dict[str, np.ndarray]) -> None:
    for i, name in enumerate(names):
        mean, std = (np.asarray(given[f"normalizer.{name}.{what}"], np.float32) for what in ("mean", "std"))
        own[f"{_STATS}mean/{i}"] = mean
        own[f"{_STATS}m2/{i}"] = np.float32(_ROWS_OF_MOMENTS) * np.square(std)
    if names:
        own[f"{_STATS}count"] = np.full_like(own[f"{_STATS}count"], _ROWS_OF_MOMENTS)


def _read(file: str) -> dict[str, np.ndarray]:
    given = f"`--input` (={file!r})"
    kind = Path(file).suffix
    if kind not in (".npz", ".safetensors"):
        raise ConfigError(f"{given} must be a .npz or .safetensors file")
    if kind == ".safetensors":
        installation.require(given, "export", "safetensors")
    try:
        open_regular(file).close()  # A pipe would wait for its writer.
        if kind == ".npz":
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        from safetensors.numpy import load_file

        return load_file(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{given} cannot be read: {' '.join(str(error).split())}") from error
    except Exception as error:  # SafetensorError derives from nothing more special
        raise ConfigError(f"{given} is damaged: {' '.join(str(error).split())}") from error


def _require_same(given: Mapping[str, Any], wanted: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Raises ConfigError unless `given` has the wanted names and no others, with their shapes."""
    text = f"`--input` (={source!r})"
    for name in wanted:
        if name not in given:
            raise ConfigError(f"{text} lacks the array {name!r} of this network{did_you_mean(name, given)}")
    for name, x in given.items():
        if name not in wanted:
            raise ConfigError(f"{text} holds {name!r}, which this network lacks{did_you_mean(name, wanted)}")
        if x.shape != wanted[name]:
            raise ConfigError(f"{text}: {name!r} has the shape {list(x.shape)}, not {list(wanted[name])}")
        if not np.issubdtype(x.dtype, np.floating) or not np.isfinite(x).all():
            raise ConfigError(f"{text}: {name!r} must hold finite floats")
