"""Output of worker processes: into the log, line by line, and not across the display."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque

log = logging.getLogger(__name__)

MOST_LOGGED = 1 << 20  # bytes of one process; an environment that prints at every step would fill the disk
_LAST = 20  # lines
_LONGEST = 500  # characters of a line


class WorkerOutput:
    """Reads the pipe `fd` to its end in a thread of its own, and closes it then.

    The log names the `source`; `last` are the last lines, for errors.
    """

    def __init__(self, fd: int, source: str):
        self.last: deque[str] = deque(maxlen=_LAST)
        self._thread = threading.Thread(target=_read, args=(fd, source, self.last), daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Waits until everything has been read; a process that the worker left behind may go on printing."""
        self._thread.join(seconds)


def _read(fd: int, source: str, last: deque[str]) -> None:
    left = MOST_LOGGED
    with os.fdopen(fd, errors="replace") as stream:
        for line in stream:
            text = line.rstrip()[:_LONGEST]
            last.append(text)
            if text and left > 0:
                log.info("%s printed: %s", source, text)
                left -= len(line)
                if left <= 0:
                    log.info("%s printed %d bytes: the rest is left out", source, MOST_LOGGED)
