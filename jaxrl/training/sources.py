"""The checkpoints that a run starts from, its own or another's."""

from __future__ import annotations

import os

from etils import epath

from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, checkpoint_folder
from jaxrl.runs.folder import RunFolder


def find_checkpoint(name: str, path: str | os.PathLike[str]) -> epath.Path:
    """The folder of a checkpoint: `path`, or the newest one in the run's folder `path`.

    Args:
      name: of what asks for it, for the error.
      path: local or gs://.

    Raises:
      CheckpointError: there is none.
    """
    folder = checkpoint_folder.open_folder(epath.Path(path).expanduser())
    if (folder / checkpoint_folder.META).exists():
        return folder
    steps = checkpoint_folder.find(folder / "checkpoints").steps
    if not steps:
        beside = checkpoint_folder.find(folder.parent).steps if folder.name.isdecimal() else {}
        there = f"; available steps: {', '.join(map(str, beside))}" if beside else ""
        raise CheckpointError(f"`{name}` (={folder}) holds no checkpoint{there}")
    return steps[max(steps)]


def stored_stage(folder: RunFolder | None, path: str | os.PathLike[str]) -> int:
    """The stage of training in which the newest checkpoint was saved; 0 if there is none to read.

    Args:
      folder: of the run, whose own checkpoints count first.
      path: of another run or checkpoint that it continues, or "".
    """
    try:
        if folder is not None and (steps := folder.checkpoints.all_steps()):
            return int(folder.checkpoints.meta(max(steps)).get("stage", 0))
        if not path:
            return 0
        found = find_checkpoint("resume_from", path)
        return int(Checkpointer(str(found.parent), create=False).meta(int(found.name)).get("stage", 0))
    except (CheckpointError, OSError, TypeError, ValueError):
        return 0  # Restoring it says what is wrong.
