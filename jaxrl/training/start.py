"""The start of a run: from its own checkpoint, another run or parts of it, or its seed."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from jaxrl.config import Config, ConfigError, from_json, planned_after, with_planned_updates
from jaxrl.parallel import process_group
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, checkpoint_folder, state_arrays
from jaxrl.runs.checkpoint.checkpoint_record import Record
from jaxrl.runs.folder import RunFolder
from jaxrl.training.checkpoints import RunCheckpoints, StartingPoint, find_checkpoint
from jaxrl.training.progress import Progress
from jaxrl.types import Acting, LearnerState, PyTree, Transferable, marks

log = logging.getLogger(__name__)


def find_start(checkpoints: RunCheckpoints) -> StartingPoint:
    """The first of these that there is; also where a run returns to when it is rolled back.

    1. The newest intact checkpoint in the run's own folder: everything continues as it was.
    2. `resume_from`: the same from a checkpoint of another folder.
    3. `init_from`: parameters and normaliser of another run, if `init_names` match; the rest fresh.
    4. Fresh, from the seed.

    Raises:
      CheckpointError: the state that is there does not fit the configuration, or none of it is intact.
      ConfigError: `resume_from` is of another task, network or seed.
    """
    config = checkpoints.config
    learning = checkpoints.learning
    if (own := checkpoints.restore()) is not None:
        return own
    if config.resume_from:
        return checkpoints.read("resume_from", config.resume_from)
    progress = Progress(learning.empty_interval())
    algorithm = learning.algorithm
    field, teacher = algorithm.teacher
    if not (config.init_from or teacher):
        return StartingPoint(None, progress)
    state = learning.initial_state()
    origin = ""
    learner = state.learner
    if teacher:  # The whole policy of another run.
        learner = algorithm.with_teacher(learner, teacher_policy(field, teacher, learner))
    if config.init_from:
        learner, report = warm_start(config.init_from, config.init_names, learner)
        origin = str(report)
    return StartingPoint(dataclasses.replace(state, learner=learner), progress, origin=origin)


def keep_earlier_rows(folder: RunFolder) -> None:
    """Says that a run restarts if one was killed before its first checkpoint, and keeps its rows."""
    if not folder.was_started:
        return
    text = "the earlier run here ended before its first checkpoint, so this one starts from step 0"
    try:
        names = folder.set_rows_aside()
    except OSError as error:
        log.warning("%s; its rows are lost: %s", text, error)
        return
    log.warning("%s%s", text, f"; its rows are now in {' and '.join(names)}" if names else "")


def stored_stage(folder: RunFolder | None, path: str | os.PathLike[str]) -> int:
    """The stage of training in which the newest checkpoint was saved; 0 if there is none to read.

    The run's own checkpoints in `folder` come first, then the run or checkpoint `path` that it continues, or
    "".
    """
    try:
        return int(_stored_meta(folder, path).get("stage", 0))
    except (CheckpointError, OSError, TypeError, ValueError):
        return 0  # Restoring it says what is wrong.


def with_stored_plan(config: Config, folder: RunFolder | None) -> Config:
    """The configuration with the updates that the run to continue has planned so far; see `find_start`.

    Stages plan those of the whole run.
    """
    if config.stages:
        return config
    planned = config.total_updates
    with contextlib.suppress(CheckpointError, OSError, KeyError, TypeError, ValueError):  # As above.
        if meta := _stored_meta(folder, config.resume_from):
            planned = planned_after(config, from_json(meta["config"]), int(meta["iteration"]))
    # All plan the same number, even if a file system shows the checkpoint to some of them later.
    return with_planned_updates(config, process_group.everywhere(planned)[0])


def _stored_meta(folder: RunFolder | None, path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The record of the newest checkpoint, or of the one that `path` names; empty if there is none."""
    if folder is not None and folder.has_checkpoints:
        return folder.checkpoints.meta(max(folder.checkpoints.all_steps()))
    if not path:
        return {}
    found = find_checkpoint("resume_from", path)
    return Checkpointer(str(found.parent), create=False).meta(int(found.name))


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


def warm_start(init_from: str, names: Sequence[str], learner: LearnerState) -> tuple[LearnerState, WarmStart]:
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


def teacher_policy(field: str, folder: str, learner: LearnerState) -> Acting:
    """The whole policy of another run with the same network as `learner`.

    Raises:
      CheckpointError: there is no checkpoint, or it is damaged.
      ConfigError: its network differs.
    """
    find_checkpoint(field, folder)
    try:
        found, report = warm_start(folder, ("*",), learner)
    except ConfigError as error:
        raise ConfigError(f"`{field}` (={folder!r}): {str(error).partition(': ')[2] or error}") from error
    missing = {name: why for name, why in report.left.items() if name.startswith(("params/", "obs_stats"))}
    for name, why in missing.items():
        raise ConfigError(f"`{field}` (={folder!r}) must be of the same network: {name} ({why})")
    return found.policy


def require_warm_start(init_from: str, names: Sequence[str], learner: LearnerState) -> None:
    """Raises as `warm_start` does for names, shapes and types; `learner` is abstract."""
    record = checkpoint_folder.read_record(find_checkpoint("init_from", init_from))
    own = {field: state_arrays.expected_arrays(tree) for field, tree in _parts(learner).items()}
    _choose(init_from, record, names, state_arrays.flat(own))


def _choose(
    init_from: str, record: Record, names: Sequence[str], own: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """(where the checkpoint holds each array, why arrays of `own` are not taken from it)."""
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
