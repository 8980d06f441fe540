"""Files that grow during a run on a bucket: written locally and uploaded whole from time to time."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from jaxrl.config.errors import ConfigError
from jaxrl.config.local_files import PARTIAL
from jaxrl.runs.storage import bucket

SEND_INTERVAL = 30.0  # seconds, if anything has changed
# Google Cloud Storage accepts one write per second of the same object.
PAUSE = 1.0
LONGEST_PAUSE = 60.0
CLOSE_SECONDS = 20.0  # seconds that the end of a run waits for the last files

log = logging.getLogger(__name__)


class StagedFolder:
    """A local folder that stands for one in a bucket during a `with` block.

    A thread sends files that have changed, each as a whole object; failures are retried with growing pauses
    and never stop the caller.
    """

    def __init__(self, target: str, resumed: Sequence[str] = (), every: float = SEND_INTERVAL) -> None:
        """Prepares the folder without making it.

        Args:
          resumed: names of files in `target`, gs://bucket/folder, to continue.
          every: seconds between checks for changes.
        """
        self._target = target
        self._resumed = resumed
        self._every = every
        self._client = bucket.filesystem()
        self._sent: dict[Path, tuple[int, int]] = {}
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._keep_sending, name="uploads", daemon=True)
        self.path = Path()

    def __enter__(self) -> StagedFolder:
        """Makes the folder and fetches the files to continue."""
        self.path = Path(tempfile.mkdtemp(prefix="jaxrl-"))
        for name in self._resumed:
            try:
                (self.path / name).write_bytes(self._client.cat_file(self._address(self.path / name)))
            except FileNotFoundError:
                continue
            except Exception as error:
                raise ConfigError(f"{self._target}/{name} cannot be read: {bucket.reason(error)}") from error
            self._sent[self.path / name] = _version(self.path / name)
        self._thread.start()
        return self

    def send_soon(self) -> None:
        """Sends changed files as soon as the bucket allows; returns at once."""
        self._wake.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sends the remaining files within `CLOSE_SECONDS`; others stay in `path`."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)
        if any(self._changed_files()):
            why = bucket.reason(self._error) if self._error else "there was no time"
            message = "not all logs have reached %s: %s; `jaxrl sync %s %s` sends them"
            log.warning(message, self._target, why, self.path, self._target)
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def _keep_sending(self) -> None:
        pause = PAUSE
        while True:
            self._wake.wait(self._every)
            self._wake.clear()
            last = self._closing.is_set()
            try:
                for file in self._changed_files():
                    self._send(file)
            except Exception as error:  # clients raise all kinds
                if self._error is None:
                    log.warning(
                        "logs do not reach %s, training continues: %s", self._target, bucket.reason(error)
                    )
                self._error = error
                pause = min(2 * pause, LONGEST_PAUSE)
                self._wake.set()
            else:
                if last:
                    return
                if self._error is not None:
                    log.info("logs reach %s again", self._target)
                self._error = None
                pause = PAUSE
            if last or self._closing.wait(pause):
                time.sleep(PAUSE if self._error else 0.0)

    def _changed_files(self) -> Iterator[Path]:
        for file in sorted(self.path.rglob("*")):
            if file.is_file() and not file.name.endswith(PARTIAL) and self._sent.get(file) != _version(file):
                yield file

    def _send(self, file: Path) -> None:
        version = _version(file)  # if it grows while it is read, it is sent again
        self._client.pipe_file(self._address(file), file.read_bytes())
        self._sent[file] = version

    def _address(self, file: Path) -> str:
        return f"{self._target.removeprefix('gs://')}/{file.relative_to(self.path).as_posix()}"


def _version(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
