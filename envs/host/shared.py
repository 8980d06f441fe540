"""What worker processes share with their parent: arrays in memory, and their output in its log.

The memory has no name: it is a file descriptor which the workers inherit. Whatever kills the parent or a
worker, the kernel frees the memory with the last process that maps it.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxrl.envs.host.worker import map_arrays

_ALIGNMENT = 64  # a cache line: neighbours are written by different processes
log = logging.getLogger(__name__)

MOST_LOGGED = 1 << 20  # bytes of one process; an environment that prints at every step would fill the disk
_LAST = 20  # lines
_LONGEST = 500  # characters of a line


class SharedArrays(dict[str, np.ndarray]):
    """Named arrays of zeros in one piece of shared memory, made of their shapes and dtypes."""

    def __init__(self, arrays: Mapping[str, tuple[tuple[int, ...], Any]]):
        layout = []
        size = 0
        for name, (shape, dtype) in arrays.items():
            layout.append((name, size, shape, np.dtype(dtype).str))
            size += -(-int(np.prod(shape)) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        self.description = {"layout": layout, "size": size}
        self._fd: int | None = _nameless_file(size)
        self.update(map_arrays(mmap.mmap(self._fd, size), layout))

    @contextlib.contextmanager
    def descriptor(self) -> Iterator[int]:
        """The file descriptor for workers to inherit, once; closed afterwards, the arrays stay."""
        assert self._fd is not None, "the workers of these arrays were started already"
        try:
            yield self._fd
        finally:
            os.close(self._fd)
            self._fd = None


def _nameless_file(size: int) -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("environments", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


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
