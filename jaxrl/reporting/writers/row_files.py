"""Metrics as one JSON object per line."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from jaxrl.config.data_files import is_number, parse_line, read_lines
from jaxrl.config.local_files import no_link, replacing
from jaxrl.reporting.writers.writer import Writer

_log = logging.getLogger(__name__)

EVALUATION = "eval/return"  # in the rows of evaluations, and in no other


class JsonlWriter(Writer):
    """Appends `{"step": ..., "time": unix seconds, key: value, ...}` to a file, a row at a time.

    Each row leaves the process before `write` returns, so a killed run loses none. JSON has no NaN and no
    infinity: such values are written as null. A new run drops the rows of an earlier one; a resumed run
    keeps the rows up to the restored step, so that steps continue exactly. The row of an evaluation that it
    repeats there is replaced.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Takes the path of a local file, whose folder must exist; the first row opens it."""
        self._path = Path(path)
        self._start_step = 0
        self._file: TextIO | None = None

    def resume_from(self, step: int) -> None:
        self.close()
        self._file = None
        self._start_step = step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._file is not None and not self._path.exists():
            # The file was moved or deleted, so what is written to it is lost; the next row makes another.
            self.close()
            self._file = None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._path))
        if self._file is None:
            truncate_after(self._path, self._start_step, is_evaluated_again(step, self._start_step, scalars))
            self._file = open(self._path, "a", encoding="utf-8", buffering=1, opener=no_link)  # noqa: SIM115
        row = {"step": step, "time": time.time()} | {name: _finite(x) for name, x in scalars.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def flush(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def is_evaluated_again(step: int, start_step: int, scalars: Mapping[str, float]) -> bool:
    """True if a run that resumes from `start_step` opens with an evaluation, which it owed."""
    return step == start_step and EVALUATION in scalars


def truncate_after(path: Path, step: int, evaluation: bool = False) -> None:
    """Drops the rows of a metrics file after `step`, and a last row that a crash cut short.

    With `evaluation` also the row of an evaluation at `step`.

    The file is replaced at once; a missing one is not created. Lines that are not rows are appended to a
    file beside it, with a warning.
    """
    if not path.exists():
        return
    lines = read_lines(path)
    steps = [(line, step_of(line)) for line in lines if line.endswith(b"\n")]
    if damaged := [line for line, at in steps if at is None]:
        aside = path.with_name(f"{path.name}.damaged")
        with open(aside, "ab", opener=no_link) as file:
            file.writelines(damaged)
        _log.warning("%d lines of %s are no rows: they are now in %s", len(damaged), path, aside)
    kept = [line for line, at in steps if at is not None and at <= step]
    if evaluation:
        kept = [line for line in kept if step_of(line) != step or EVALUATION not in (parse_line(line) or {})]
    if len(kept) < len(lines):
        with replacing(path) as stream:
            stream.writelines(kept)


def step_of(line: bytes) -> float | None:
    """The step of a row; None for a line that is not a row."""
    row = parse_line(line)
    return float(row["step"]) if row is not None and is_number(row.get("step")) else None


def _finite(x: float) -> int | float | None:
    if isinstance(x, int):
        return x
    x = float(x)
    return x if math.isfinite(x) else None
