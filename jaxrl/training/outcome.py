"""The end of a run, for its caller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOutcome:
    """The end of a run.

    Attributes:
      exit_code: 0, or 128 + the number of the signal that ended it.
      folder: where it is.
      resumable: true if a signal, or the time of the process, ended it before its budget was used up.
      needs_trust: true if its configuration names modules, which other commands import with --trust only.
      has_tensorboard: true if it wrote files for TensorBoard.
      is_first: true if this is the first process of the run, which speaks for all.
    """

    exit_code: int
    folder: str
    resumable: bool
    needs_trust: bool
    has_tensorboard: bool
    is_first: bool
