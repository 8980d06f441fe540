"""The checkpoint of another run; `init_from`: a fresh run that starts from its parameters and normaliser."""

from __future__ import annotations

import dataclasses
import fnmatch
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from jaxrl.config import ConfigError, words
from jaxrl.runs.checkpoint import CheckpointError, checkpoint_folder, state_arrays
from jaxrl.runs.checkpoint.checkpoint_record import Record
from jaxrl.types import Acting, LearnerState, PyTree, Transferable, marks

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The arrays that were taken over from the checkpoint `path`, and why the others were not."""

    path: epath.Path
    loaded: tuple[str, ...]
    left: dict[str, str]

    def __str__(self) -> str:
        text = f"{len(self.loaded)} arrays from {self.path}"
        if self.left:
            text += f"; fresh: {', '.join(f'{name} ({why})' for name, why in self.left.items())}"
        return text


def find_checkpoint(name: str, path: str | os.PathLike[str]) -> epath.Path:
    """The folder of a checkpoint: `path`, or the newest one in the run's folder `path`.

    Args:
      name: of what asks for it, for the error.
      path: local or gs://.

    Raises:
      CheckpointError: there is none.
    """
    if not os.fspath(path):
        raise CheckpointError(f"`{name}` (='') must name a folder")
    folder = checkpoint_folder.open_folder(epath.Path(path).expanduser())
    if (folder / checkpoint_folder.META).exists():
        return folder
    steps = checkpoint_folder.find(folder / "checkpoints").steps
    if not steps:
        beside = checkpoint_folder.find(folder.parent).steps if folder.name.isdecimal() else {}
        there = f"; available steps: {', '.join(map(str, beside))}" if beside else ""
        foreign = "" if beside else words.in_place_of_run(str(folder))
        raise CheckpointError(f"`{name}` (={folder}) {foreign or f'holds no checkpoint{there}'}")
    return steps[max(steps)]


def load(init_from: str, names: Sequence[str], learner: LearnerState) -> tuple[LearnerState, WarmStart]:
    """Returns `learner` with the arrays of another run, and what these were.

    Args:
      init_from: a run's folder (its newest checkpoint is taken) or one checkpoint's folder.
      names: shell patterns, such as "params/encoder*"; an array is taken if any fits its name.
      learner: a fresh state; its other fields, such as the optimiser's, stay as they are.

    Raises:
      CheckpointError: there is no checkpoint, or it is damaged.
      ConfigError: a pattern fits no array of this network, or nothing can be taken over.
    """
    path = find_checkpoint("init_from", init_from)
    trees = _parts(learner)
    own = {name: np.asarray(x) for name, x in state_arrays.flat(state_arrays.to_arrays(trees)).items()}
    record = checkpoint_folder.read_record(path)
    places, left = _choose(init_from, record, names, own)
    loaded = tuple(name for name in own if name not in left)
    read = checkpoint_folder.read_arrays(path, record, [places[name] for name in loaded])
    mixed = own | {name: read[places[name]] for name in loaded}
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), trees)
    taken = {field: state_arrays.rebuild(field, abstract[field], mixed) for field in trees}
    report = WarmStart(path, loaded, left)
    log.info("warm start: %s", report)
    policy = Acting(taken.pop("params"), taken.pop("obs_stats"))
    return dataclasses.replace(learner, policy=policy, **taken), report


def policy(field: str, folder: str, learner: LearnerState) -> Acting:
    """The whole policy of another run with the same network.

    Args:
      learner: whose policy has the same arrays.

    Raises:
      CheckpointError: there is no checkpoint, or it is damaged.
      ConfigError: its network differs.
    """
    find_checkpoint(field, folder)
    try:
        found, report = load(folder, ("*",), learner)
    except ConfigError as error:
        raise ConfigError(f"`{field}` (={folder!r}): {str(error).partition(': ')[2] or error}") from error
    missing = {name: why for name, why in report.left.items() if name.startswith(("params/", "obs_stats"))}
    for name, why in missing.items():
        raise ConfigError(f"`{field}` (={folder!r}) must be of the same network: {name} ({why})")
    return found.policy


def require(init_from: str, names: Sequence[str], learner: LearnerState) -> None:
    """Raises as `load` does for names, shapes and types; `learner` is abstract."""
    record = checkpoint_folder.read_record(find_checkpoint("init_from", init_from))
    own = {field: state_arrays.expected_arrays(tree) for field, tree in _parts(learner).items()}
    _choose(init_from, record, names, state_arrays.flat(own))


def _choose(
    init_from: str, record: Record, names: Sequence[str], own: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """(where the checkpoint holds each array, why arrays of `own` are not taken from there).

    Raises:
      ConfigError: a pattern fits no array of this network, or nothing can be taken over.
    """
    fields = {name.partition("/")[0] for name in own}
    places = {
        f"{part}{name.removeprefix(place)}": name
        for part, place in ((part, _place(part)) for part in fields)
        for name in record.part((place,))
    }
    for pattern in names:
        if not fnmatch.filter(own, pattern):
            known = ", ".join(own)
            raise ConfigError(f"`init_names` (={pattern!r}) fits no array of this network: {known}")
    theirs = {name: record.arrays[there] for name, there in places.items()}
    left = {name: why for name, x in own.items() if (why := _why_not(name, x, theirs, names))}
    # A normaliser is taken whole or not at all: the mean of one run over the count of another means nothing.
    for field in fields - {"params"}:
        whole = [name for name in own if name.startswith(f"{field}/")]
        if any(name in left for name in whole):
            left |= {name: left.get(name, "its normaliser is not taken whole") for name in whole}
    if len(left) == len(own):
        name, why = next(iter(left.items()))
        raise ConfigError(f"`init_from` (={init_from!r}) gives nothing to this network: {name} ({why})")
    return places, left


def _parts(learner: LearnerState) -> dict[str, PyTree]:
    """The parts that may be taken over, by the names that users know: params, obs_stats, ..."""
    fields = marks(type(learner), Transferable)
    others = {name: getattr(learner, name) for name in fields if name != "policy"}
    return {"params": learner.policy.params, "obs_stats": learner.policy.obs_stats, **others}


def _place(part: str) -> str:
    """The place of a part in a checkpoint."""
    return f"learner/policy/{part}" if part in ("params", "obs_stats") else f"learner/{part}"


def _why_not(
    name: str, own: Any, stored: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> str | None:
    if not any(fnmatch.fnmatch(name, pattern) for pattern in names):
        return "not among `init_names`"
    if name not in stored:
        return "not in the checkpoint"
    theirs = f"{stored[name]['dtype']}{stored[name]['shape']}"
    ours = f"{own.dtype}{list(own.shape)}"
    return None if theirs == ours else f"{theirs} there, {ours} here"
