"""Metrics as TensorBoard event files, through tensorboardX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jaxrl.metrics.base import Writer

# On gs:// every flush uploads the whole file again.
FLUSH_SECONDS = 120


class TensorBoardWriter(Writer):
    """Writes every scalar under its own tag, against environment steps."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Names the folder for the event file, local or gs://; opened with the first row."""
        self._folder = os.fspath(folder)
        self._start_step = 0
        self._events: Any = None

    def resume_from(self, step: int) -> None:
        self.close()
        self._events, self._start_step = None, step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._events is None:
            # Here, not above: its import takes longer than the rest of the package's start.
            from tensorboardX import SummaryWriter

            # TensorBoard hides what earlier event files hold from `purge_step` on.
            self._events = SummaryWriter(
                self._folder, purge_step=self._start_step + 1, flush_secs=FLUSH_SECONDS
            )
        for name, value in scalars.items():
            self._events.add_scalar(name, float(value), step)

    def flush(self) -> None:
        if self._events is not None:
            self._events.flush()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
