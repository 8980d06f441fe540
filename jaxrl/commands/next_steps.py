"""The lines that a run prints at its end: where it is, and what can be done with it."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jaxrl.commands import resumption

if TYPE_CHECKING:
    from jaxrl.training.in_folder import RunOutcome


def lines(outcome: RunOutcome, argv: Sequence[str]) -> Iterator[str]:
    """Yields the lines to print.

    Args:
      outcome: of the run.
      argv: the program and the arguments that trained it.
    """
    folder = outcome.folder
    jaxrl = resumption.jaxrl()
    yield f"run folder:  {folder}"
    if outcome.resumable:
        yield f"resume:      {resumption.command(argv, folder)}"
        return
    evaluate = [*jaxrl, "evaluate", f"--workdir={folder}"]
    # The module is the user's own: they have just trained with it.
    yield f"evaluate:    {shlex.join(evaluate + ['--trust'] * outcome.needs_trust)}"
    yield f"watch:       {shlex.join([*jaxrl, 'watch', folder])}"
    if outcome.has_tensorboard and importlib.util.find_spec("tensorboard"):
        logs = os.path.join(folder, "tensorboard")
        yield f"tensorboard: {shlex.join(['tensorboard', f'--logdir={logs}'])}"
