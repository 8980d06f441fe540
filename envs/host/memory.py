"""Arrays in memory that worker processes share.

The memory has no name: it is a file descriptor which the workers inherit. Whatever kills the parent or a
worker, the kernel frees the memory with the last process that maps it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jaxrl.envs.host.worker import map_arrays

_ALIGNMENT = 64  # a cache line: neighbours are written by different processes


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
