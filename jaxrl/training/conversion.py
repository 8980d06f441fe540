"""Runs made of parameters from a file, or of a checkpoint that an older version of this package wrote."""

from __future__ import annotations

import dataclasses
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath

from envs.base import EnvSpec
from jaxrl.config import (
    Config,
    ConfigError,
    declared_fields,
    environment_spec,
    flatten,
    from_json,
    installation,
)
from jaxrl.config.errors import did_you_mean
from jaxrl.config.trust import require_trusted
from jaxrl.evaluation.policy_function import normalized_names
from jaxrl.runs import records
from jaxrl.runs.checkpoint import folder as checkpoint_folder
from jaxrl.runs.checkpoint import state_arrays
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.progress import Progress

_POLICY_PLACE = "learner/policy/"
_PARAMS, _STATS = f"{_POLICY_PLACE}params/", f"{_POLICY_PLACE}obs_stats/"
# A file says nothing of how many observations its moments come from; new ones must not displace them at once.
_ROWS_OF_MOMENTS = 1e6
# Where version 0.1.0 before the rooms (docs/design/0013-rooms.md) kept the fields of its state.
_POLICY, _COLLECTOR = ("params", "obs_stats"), ("env_state", "obs", "reset", "carry", "episode")
_LEARNER = ("opt_state", "reward_stats", "discounted_return", "hyperparams", "updates")

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What became of it.

    Attributes:
      step: of the checkpoint that was written.
      taken: how many arrays came from the source.
      notes: what did not, in words.
    """

    step: int
    taken: int
    notes: tuple[str, ...]


def from_file(file: str, config: Config, workdir: str) -> Conversion:
    """Starts a run, not trained yet, with the parameters of a file.

    Args:
      file: .npz or .safetensors with arrays named as `jaxrl export` names them: `params.PATH`, and
        `normalizer.OBS.mean` and `.std` where observations are normalised.
      config: of the run; resolved for one device.
      workdir: its folder.

    Raises:
      ConfigError: the file cannot be read, or its names and shapes are not those of the network.
    """
    given = _read(file)

    def take(own: Arrays, spec: EnvSpec) -> Conversion:
        wanted = {_exported(name): name for name in own if name.startswith(_PARAMS)}
        moments = _moments(own, spec) if config.normalize.observations else {}
        shapes = {**{name: own[place].shape for name, place in wanted.items()}, **moments}
        _require_same(given, shapes, file)
        for name, place in wanted.items():
            own[place] = np.asarray(given[name], np.float32)
        _take_moments(given, moments, own)
        return Conversion(0, len(shapes), ())

    return _written(config, workdir, take)


def from_run(source: str, checkpoint: str, workdir: str, trust: bool = False) -> Conversion:
    """Continues a run of an older version in a new folder.

    Args:
      source: its folder, which stays as it is.
      checkpoint: "latest" or a step.
      workdir: the new folder.
      trust: import the modules that the run's configuration names.

    Raises:
      ConfigError: the source is no run or is of this version, its parameters do not fit today's network, or
        it names modules that are not trusted.
      CheckpointError: there is no such checkpoint, or it is damaged.
    """
    folder = checkpoint_folder.open_folder(os.path.join(source, "checkpoints"))
    steps = checkpoint_folder.find(folder).steps
    if checkpoint != "latest" and not checkpoint.isdigit():
        raise ConfigError(f"`--checkpoint` (={checkpoint!r}) must be latest or a step")
    wanted = max(steps, default=0) if checkpoint == "latest" else int(checkpoint)
    if wanted not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise ConfigError(f"`--checkpoint` (={checkpoint!r}): the checkpoints of {source} are {there}")
    record = checkpoint_folder.read_record(steps[wanted])
    if "params" not in record.fields:
        raise ConfigError(f"`--input` (={source!r}) is a run of this version: there is nothing to convert")
    old = {_today(name): x for name, x in checkpoint_folder.read_arrays(steps[wanted], record).items()}
    config, dropped = _config(source, record.meta)
    if not trust:
        require_trusted(config, source)
    environment_spec("env.name", config.env.name, config.env.name, config.env.wrappers)

    def take(own: Arrays, spec: EnvSpec) -> Conversion:
        ours, theirs = ({n: x for n, x in xs.items() if n.startswith(_POLICY_PLACE)} for xs in (own, old))
        _require_same(theirs, {name: x.shape for name, x in ours.items()}, source)
        parts = {name: _part(name) for name in own}
        fitting = {name for name in own if name in old and _form(old[name]) == _form(own[name])}
        # The episodes in progress, or the state of the optimiser, are taken whole or not at all.
        anew = {parts[name] for name in own if name not in fitting}
        taken = [name for name in own if parts[name] not in anew]
        own |= {name: old[name] for name in taken}
        notes = [f"left out of the configuration: {', '.join(dropped)}"] if dropped else []
        notes += [f"begins anew: {', '.join(sorted(anew))}"] if anew else []
        return Conversion(wanted, len(taken), tuple(notes))

    return _written(config, workdir, take, record.meta)


def _written(
    config: Config,
    workdir: str,
    take: Callable[[Arrays, EnvSpec], Conversion],
    meta: Mapping[str, Any] = {},
) -> Conversion:
    """A run folder with one checkpoint: a fresh state, with the arrays that `take` replaces in it."""
    folder = RunFolder(workdir)
    if (folder.path / "config.json").exists():
        raise ConfigError(f"`--workdir` (={workdir!r}) holds a run already: name another folder")
    runtime = Assembly.build(config).runtime
    learning = runtime.learning
    state = learning.initial_state()
    trees = state_arrays.fields(state)
    own = {name: np.asarray(x) for name, x in state_arrays.flat(state_arrays.stored(state)).items()}
    conversion = take(own, runtime.spec)
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), trees)
    state = type(state)(**{name: state_arrays.rebuilt(name, tree, own) for name, tree in abstract.items()})
    folder.create()
    with folder.lock():
        folder.write_config(config)
        progress = Progress(
            learning.empty_interval(), iteration=int(state.iteration), seconds=float(meta.get("seconds", 0.0))
        )
        RunCheckpoints(folder, learning).save_last(state, progress)
        folder.checkpoints.close()
    return conversion


def _read(file: str) -> Arrays:
    kind = Path(file).suffix
    try:
        if kind == ".npz":
            with np.load(file, allow_pickle=False) as stored:
                found: Arrays = {name: stored[name] for name in stored.files}
        elif kind == ".safetensors":
            from safetensors.numpy import load_file

            found = load_file(file)
        else:
            text = "must be a .npz or .safetensors file, or the folder of a run"
            raise ConfigError(f"`--input` (={file!r}) {text}")
    except ModuleNotFoundError as error:
        text = f"`--input` (={file!r}) needs the package safetensors: {installation.command('export')}"
        raise ConfigError(text) from error
    except ConfigError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"`--input` (={file!r}) cannot be read: {' '.join(str(error).split())}") from error
    except Exception as error:  # SafetensorError derives from nothing more special
        raise ConfigError(f"`--input` (={file!r}) is damaged: {' '.join(str(error).split())}") from error
    return found


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


def _exported(place: str) -> str:
    return f"params.{place.removeprefix(_PARAMS).replace('/', '.')}"


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
        own[f"{_STATS}count"] = np.asarray(_ROWS_OF_MOMENTS, np.float32)


def _today(name: str) -> str:
    """Where an array of an older state is today."""
    field = name.partition("/")[0]
    if field in _POLICY:
        return f"learner/policy/{name}"
    if field in _LEARNER:
        return f"learner/{name}".rstrip("/")
    return f"collector/{name}".rstrip("/") if field in _COLLECTOR else name


def _part(name: str) -> str:
    """What belongs together, by the name of one of its arrays."""
    first, _, rest = name.partition("/")
    return f"learner/{rest.partition('/')[0]}" if first == "learner" else first


def _form(x: np.ndarray) -> tuple[Any, ...]:
    return x.dtype, x.shape


def _config(source: str, meta: Mapping[str, Any]) -> tuple[Config, list[str]]:
    """The configuration of an older run, for one device, and the fields that are none any more."""
    file = epath.Path(source) / "config.json"
    data = records.read_json(file) if file.exists() else dict(meta.get("config", {}))
    known, dropped, fields = declared_fields(), [], {}
    for name, value in flatten(data).items():
        if name.startswith("derived.") or name == "device_count":
            continue
        if name in known:
            fields[name] = value
        else:
            dropped.append(name)
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        section, _, key = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[key] = value
    return from_json(nested | {"num_devices": 0, "device_count": 1}), dropped
