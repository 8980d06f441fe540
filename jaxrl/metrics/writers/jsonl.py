"""Metrics as one JSON object per line."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from jaxrl.metrics.files import replace_text
from jaxrl.metrics.writers.base import Writer


class JsonlWriter(Writer):
    """Appends `{"step": ..., "time": unix seconds, key: value, ...}` to a file, a row at a time.

    Each row leaves the process before `write` returns, so a killed run loses none. JSON has no NaN and no
    infinity: such values are written as null. A new run drops the rows of an earlier one; a resumed run
    keeps those up to the restored step, so that steps continue exactly.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Takes the path of a local file, whose folder must exist; the first row opens it."""
        self._path = Path(path)
        self._start_step = 0
        self._file: TextIO | None = None

    def resume_from(self, step: int) -> None:
        self.close()
        self._file, self._start_step = None, step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._file is not None and not self._path.exists():
            # The file was moved or deleted, so what is written to it is lost; the next row makes another.
            self.close()
            self._file = None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._path))
        if self._file is None:
            truncate_after(self._path, self._start_step)
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        row = {"step": step, "time": time.time()} | {name: _finite(x) for name, x in scalars.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def flush(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def truncate_after(path: Path, step: int) -> None:
    """Drops the rows of a metrics file beyond `step`, and a row torn by a crash.

    The file is replaced in one piece. A missing file is left missing.
    """
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.endswith("\n") and _step_of(line) <= step]
    if len(kept) == len(lines):
        return
    replace_text(path, "".join(kept))


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _finite(x: float) -> int | float | None:
    if isinstance(x, int):
        return x
    x = float(x)
    return x if math.isfinite(x) else None
