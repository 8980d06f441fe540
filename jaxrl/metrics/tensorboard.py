"""Metrics as TensorBoard event files, through tensorboardX."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from jaxrl.metrics.base import Writer

# On gs:// every flush uploads the whole file again.
FLUSH_SECONDS = 120


class TensorBoardWriter(Writer):
    """Writes every scalar under its own tag, against environment steps.

    In the thread that calls: that of tensorboardX dies of a full disk, and its queue then blocks for ever.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Names the folder for event files, local or gs://; the first is opened with the first row."""
        self._folder = os.fspath(folder)
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

        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in scalars.items()]
        try:
            if self._file is None:
                self._open()
            self._event(step=step, summary=Summary(value=values))
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
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.record_writer import RecordWriter, directory_check

        directory_check(self._folder)
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}.{self._files}"
        self._files += 1
        self._file, self._flushed = RecordWriter(os.path.join(self._folder, name)), time.monotonic()
        self._event(file_version="brain.Event:2")
        if self._start_step is not None:
            # TensorBoard hides what earlier files hold from this step on.
            self._event(step=self._start_step + 1, session_log=SessionLog(status=SessionLog.START))
            self._start_step = None

    def _event(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._file.write(Event(wall_time=time.time(), **fields).SerializeToString())
