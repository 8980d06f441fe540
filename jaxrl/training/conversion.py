"""Runs made of parameters from a file."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import Config, ConfigError, installation
from jaxrl.config.data_files import open_regular
from jaxrl.config.errors import did_you_mean
from jaxrl.envs.base import EnvSpec
from jaxrl.evaluation.policy_function import flat, normalized_names
from jaxrl.runs.checkpoint import state_arrays
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.progress import Progress

_POLICY_PLACE = "learner/policy/"
_PARAMS = f"{_POLICY_PLACE}params/"
_STATS = f"{_POLICY_PLACE}obs_stats/"
# A file says nothing of how many observations its moments come from; new ones must not displace them at once.
_ROWS_OF_MOMENTS = 1e6

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The result of a conversion.

    Attributes:
      step: of the checkpoint that was written.
      taken: how many arrays came from the file.
    """

    step: int
    taken: int


def from_file(file: str, config: Config, workdir: str) -> Conversion:
    """Starts a run, not trained yet, with the parameters of a file.

    Args:
      file: .npz or .safetensors with arrays named as `jaxrl export` names them: `params.PATH`, and
        `normalizer.OBS.mean` and `.std` if observations are normalised.
      config: of the run; resolved for one device.

    Raises:
      ConfigError: the file cannot be read, or its names and shapes do not match the network.
    """
    given = _read(file)

    def take(own: Arrays, acting: list[str], spec: EnvSpec) -> Conversion:
        wanted = {f"params.{name}": f"{_PARAMS}{name.replace('.', '/')}" for name in acting}
        moments = _moments(own, spec) if config.normalize.observations else {}
        shapes = {**{name: own[place].shape for name, place in wanted.items()}, **moments}
        _require_same(given, shapes, file)
        for name, place in wanted.items():
            own[place] = np.asarray(given[name], np.float32)
        _take_moments(given, moments, own)
        return Conversion(0, len(shapes))

    return _write(config, workdir, take)


def _write(
    config: Config, workdir: str, take: Callable[[Arrays, list[str], EnvSpec], Conversion]
) -> Conversion:
    """Writes a run folder with one checkpoint: a fresh state, with the arrays that `take` replaces in it.

    `take` gets all arrays of the state by their places, and the names of the parameters that acting needs.
    """
    folder = RunFolder(workdir)
    if (folder.path / "config.json").exists():
        raise ConfigError(f"`--workdir` (={workdir!r}) holds a run already: name another folder")
    runtime = Assembly.build(config).runtime
    learning = runtime.learning
    state = learning.initial_state()
    trees = state_arrays.fields(state)
    own = {name: np.asarray(x) for name, x in state_arrays.flat(state_arrays.to_arrays(state)).items()}
    acting = [name for name, _ in flat(runtime.agent.acting_params(state.learner.policy.params))]
    conversion = take(own, acting, runtime.spec)
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), trees)
    state = type(state)(**{name: state_arrays.rebuild(name, tree, own) for name, tree in abstract.items()})
    folder.create()
    with folder.lock():
        folder.write_config(config)
        progress = Progress(learning.empty_interval(), iteration=int(state.iteration))
        RunCheckpoints(folder, learning).save_last(state, progress)
        folder.checkpoints.close()
    return conversion


def _read(file: str) -> Arrays:
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


def _moments(own: Arrays, spec: EnvSpec) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the normaliser in a file."""
    names = normalized_names(spec.observation_space)
    shapes = {name: own[f"{_STATS}mean/{i}"].shape for i, name in enumerate(names)}
    return {f"normalizer.{name}.{what}": shape for name, shape in shapes.items() for what in ("mean", "std")}


def _take_moments(given: Arrays, moments: Mapping[str, Any], own: Arrays) -> None:
    names = [name.removesuffix(".mean") for name in moments if name.endswith(".mean")]
    for i, name in enumerate(names):
        own[f"{_STATS}mean/{i}"] = np.asarray(given[f"{name}.mean"], np.float32)
        variance = np.square(np.asarray(given[f"{name}.std"], np.float32))
        own[f"{_STATS}m2/{i}"] = np.float32(_ROWS_OF_MOMENTS) * variance
    if names:
        own[f"{_STATS}count"] = np.full_like(own[f"{_STATS}count"], _ROWS_OF_MOMENTS)
