"""Metrics as TensorBoard event files, through tensorboardX."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config.local_files import is_remote
from jaxrl.reporting.writers import summaries
from jaxrl.reporting.writers.writer import Writer, finite_samples

# On gs:// every flush uploads the whole file again.
FLUSH_SECONDS = 120


class TensorBoardWriter(Writer):
    """Writes every scalar under its own tag against environment steps, except the steps themselves.

    The first file of a process also holds the configuration as text, hyperparameters and a layout of charts.
    Writes in the calling thread: a thread of tensorboardX would die of a full disk and block its queue.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any] = types.MappingProxyType({}),
        highlights: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Takes the folder for event files; the first row opens the first file.

        Args:
          folder: local or gs://.
          config: as JSON values.
          highlights: (metric, label) of the algorithm's charts.
        """
        # tensorboardX takes what comes before a colon for the kind of address.
        self._folder = os.fspath(folder) if is_remote(folder) else os.path.abspath(folder)
        self._config = config
        self._highlights = highlights
        self._start_step: int | None = 0
        self._file: Any = None
        self._files = 0
        self._flushed = 0.0

    def resume_from(self, step: int) -> None:
        self.close()
        self._start_step = step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        # Here, not above: its import takes longer than the rest of the package's start.
        from tensorboardX.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=name, simple_value=float(x)) for name, x in scalars.items() if name != "steps"
        ]
        self._write(step, [Summary(value=values)])

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        finite = finite_samples(samples)
        self._write(step, [summaries.histogram(name, values) for name, values in finite.items()])

    def finish(self, summary: Mapping[str, Any]) -> None:
        if self._file is not None and self._config:
            self._write(int(summary.get("steps", 0)), summaries.end_summaries(self._config))

    def _write(self, step: int, contents: Sequence[Any]) -> None:
        try:
            if self._file is None:
                self._open()
            for content in contents:
                self._event(step=step, summary=content)
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self.flush()
        except OSError:
            # TensorBoard reads a file up to a torn record: the next row goes to another.
            with contextlib.suppress(OSError):
                self.close()
            raise

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        file = self._file
        self._file = None
        if file is not None:
            file.close()

    def _open(self) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.record_writer import RecordWriter, directory_check

        if os.path.islink(self._folder):
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", self._folder)
        directory_check(self._folder)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{self._files}"
        self._files += 1
        self._file = RecordWriter(os.path.join(self._folder, name))
        self._flushed = time.monotonic()
        self._event(file_version="brain.Event:2")
        if self._start_step is not None:
            # TensorBoard hides what earlier files hold from this step on.
            self._event(step=self._start_step + 1, session_log=SessionLog(status=SessionLog.START))
            step = self._start_step
            self._start_step = None
            if self._config:
                self._write(step, summaries.start_summaries(self._config, self._highlights))

    def _event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._file.write(Event(wall_time=time.time(), **fields).SerializeToString())
