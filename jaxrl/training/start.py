"""The start of a run: from its own checkpoint, another run, or its seed."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Mapping
from typing import Any

from jaxrl.config import Config, from_json, planned_after, with_planned_updates
from jaxrl.parallel import process_group
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError
from jaxrl.runs.folder import RunFolder
from jaxrl.training import warm_start
from jaxrl.training.checkpoints import RunCheckpoints, StartingPoint
from jaxrl.training.progress import Progress
from jaxrl.training.warm_start import find_checkpoint

log = logging.getLogger(__name__)


def find_start(checkpoints: RunCheckpoints) -> StartingPoint:
    """The first of these that there is; also where a run returns to when it is rolled back.

    1. The newest intact checkpoint in the run's own folder: everything continues as it was.
    2. `resume_from`: the same from a checkpoint of another folder.
    3. `init_from`: parameters and normaliser of another run, if `init_names` match; the rest fresh.
    4. Fresh, from the seed.

    Args:
      checkpoints: of the run, with its configuration.

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
        learner = algorithm.with_teacher(learner, warm_start.policy(field, teacher, learner))
    if config.init_from:
        learner, report = warm_start.load(config.init_from, config.init_names, learner)
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

    Args:
      folder: of the run, whose own checkpoints count first.
      path: of another run or checkpoint that it continues, or "".
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
    # All compile one program, even if a file system shows the checkpoint to some of them later.
    return with_planned_updates(config, process_group.everywhere(planned)[0])


def _stored_meta(folder: RunFolder | None, path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The record of the newest checkpoint, or of the one that `path` names; empty if there is none."""
    if folder is not None and folder.has_checkpoints:
        return folder.checkpoints.meta(max(folder.checkpoints.all_steps()))
    if not path:
        return {}
    found = find_checkpoint("resume_from", path)
    return Checkpointer(str(found.parent), create=False).meta(int(found.name))
