"""Verification of a run's checkpoints: arrays against digests, and other entries beside them."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from etils import epath

from jaxrl.config import words
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.runs.checkpoint import checkpoint_files, checkpoint_folder
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.checkpoint.checkpoint_record import Record
from jaxrl.runs.checkpoint.memory_item import MemoryItems

CHECKPOINT = "checkpoint"
SET_ASIDE = "set aside"
UNFINISHED = "unfinished"
IGNORED = "ignored"


@dataclasses.dataclass(frozen=True)
class CheckpointEntry:
    """A checkpoint, or something in the place of one.

    Attributes:
      kind: "checkpoint"; "set aside": a trainer found it damaged; "unfinished": remains of an interrupted
        save or deletion; "ignored": no checkpoint.
      problem: the reason why it cannot be used; None if it can.
      size: bytes of its files.
      step, iteration, score, evaluation: as saved; None if they are not known.
      arrays: number of arrays by field of the training state.
      metadata: the user's data stored with it, `config.notes` included.
      bad: True if a run would try to resume from it although it is not intact.
    """

    kind: str
    path: str
    problem: str | None
    size: int
    step: int | None = None
    iteration: int | None = None
    score: float | None = None
    evaluation: Mapping[str, Any] | None = None
    arrays: Mapping[str, int] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bad: bool = False


def verify(
    workdir: str, step: int | None = None, check: Callable[[Mapping[str, Any]], None] = lambda meta: None
) -> list[CheckpointEntry]:
    """Reads the checkpoints of a run, or only one, and compares them with their digests.

    Args:
      step: the step of one checkpoint; None for all of them and everything beside them.
      check: raises ValueError for data beside the arrays that no trainer stores.

    Raises:
      ConfigError: there is no such folder, or no such checkpoint in it.
    """
    run = checkpoint_folder.open_folder(workdir)
    if not run.is_dir():
        raise ConfigError(f"`--workdir` (={workdir}) is no folder")
    with errors_as(ConfigError, f"`--workdir` (={workdir}) cannot be read", OSError):
        contents = checkpoint_folder.find(run / "checkpoints")
        aside = sorted((run / "corrupt").iterdir()) if (run / "corrupt").is_dir() else []
    if step is not None and step not in contents.steps:
        known = ", ".join(str(s) for s in contents.steps) or "none"
        raise ConfigError(f"`--step` (={step}): no such checkpoint in {run}; available steps: {known}")
    chosen = contents.steps.items() if step is None else [(step, contents.steps[step])]
    # A trainer may have deleted one meanwhile.
    entries = [
        entry for s, path in chosen if (entry := _verify_one(CHECKPOINT, path, s, check)) and path.exists()
    ]
    if step is None:
        entries += [_verify_one(SET_ASIDE, path, None, check) for path in aside]
        text = "was being written or deleted when a run ended"
        entries += [CheckpointEntry(UNFINISHED, str(p), f"{p} {text}", _size(p)) for p in contents.unfinished]
        entries += [_stray(path, kind, run) for path, kind in contents.ignored.items()]
    if not any(entry.kind in (CHECKPOINT, SET_ASIDE) for entry in entries):
        found = words.in_place_of_run(workdir) or "holds no checkpoints"
        raise ConfigError(f"`--workdir` (={workdir}) {found}")
    return entries


def _verify_one(
    kind: str, path: epath.Path, step: int | None, check: Callable[[Mapping[str, Any]], None]
) -> CheckpointEntry:
    entry = CheckpointEntry(kind, str(path), None, _size(path), step)
    try:
        record = checkpoint_folder.read_record(path)
        with errors_as(CorruptCheckpoint, f"the checkpoint {path} is damaged", ValueError):
            check(record.meta)
        counts = Counter(map(_field, record.arrays))
        entry = dataclasses.replace(
            entry,
            step=record.step,
            iteration=record.meta.get("iteration"),
            score=record.score,
            evaluation=record.meta.get("evaluation"),
            metadata=record.meta.get("metadata", {}),
            arrays=dict(sorted(counts.items())),
        )
        checkpoint_folder.read_arrays(path, record)
        if kind == CHECKPOINT:
            problem = _memory_problem(path, record)
            entry = dataclasses.replace(entry, problem=problem, bad=problem is not None)
    except CheckpointError as error:
        return dataclasses.replace(entry, problem=str(error), bad=kind == CHECKPOINT)
    return entry


def _memory_problem(path: epath.Path, record: Record) -> str | None:
    """The damage to the rows of a large memory, which only the newest checkpoint must have."""
    problem = MemoryItems(path.parent).problem(record)
    if problem is None:
        return None
    # A trainer may have saved another one meanwhile.
    return problem if record.step == max(checkpoint_folder.find(path.parent).steps) else None


def _field(name: str) -> str:
    """`learner/opt_state` of `learner/opt_state/mu`, `key` of `key/:fry`."""
    return "/".join(part for part in name.partition(":")[0].split("/")[:2] if part)


def _stray(path: epath.Path, kind: str, run: epath.Path) -> CheckpointEntry:
    """An entry that is not a checkpoint; a link that leads out of the run is bad."""
    entry = CheckpointEntry(IGNORED, str(path), f"{path} is {kind}, no checkpoint", 0)
    target = os.path.realpath(path)
    if kind == "a symbolic link" and not Path(target).is_relative_to(os.path.realpath(run)):
        return dataclasses.replace(entry, problem=f"{path} is {kind} that leads out of the run", bad=True)
    return entry


def _size(path: epath.Path) -> int:
    try:
        return checkpoint_files.size(path)
    except OSError:
        return 0
