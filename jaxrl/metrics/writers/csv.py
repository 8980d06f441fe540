"""Metrics as one table for spreadsheets."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from jaxrl.metrics.files import no_link, replace_text
from jaxrl.metrics.writers.base import Writer

_MOST_DIGITS = 20  # of a step


class CsvWriter(Writer):
    """Writes `step,time,KEY,...` with a row per call, and an empty cell where a row lacks a key.

    A new key becomes the last column, and the file is rewritten for it. Rows leave the process before
    `write` returns. As with `JsonlWriter`, a new run drops the rows of an earlier one, and a resumed run
    keeps those up to the restored step.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Takes the path of a local file, whose folder must exist; the first row creates it."""
        self._path = Path(path)
        self._start_step = 0
        self._columns: list[str] | None = None  # None until the file has been read

    def resume_from(self, step: int) -> None:
        self._columns, self._start_step = None, step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        row = {"step": str(step), "time": f"{time.time():.3f}"} | {k: _text(x) for k, x in scalars.items()}
        known = self._columns
        if known is not None and self._path.exists() and row.keys() <= set(known):
            with open(self._path, "a", encoding="utf-8", newline="", opener=no_link) as file:
                file.write(_table(known, [row]))
            return
        rows = self._kept() if known is None else _read(self._path)
        columns = list(dict.fromkeys(name for kept in (*rows, row) for name in kept))
        header = dict(zip(columns, columns, strict=True))
        replace_text(self._path, _table(columns, [header, *rows, row]))
        self._columns = columns

    def _kept(self) -> list[dict[str, str]]:
        return [row for row in _read(self._path) if _step_of(row) <= self._start_step]


def _read(path: Path) -> list[dict[str, str]]:
    """The rows of a file, without a last one torn by a crash."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
    # More cells than columns, or fewer, are damage.
    return [row for row in rows if None not in row and None not in row.values()]


def _step_of(row: Mapping[str, str]) -> float:
    step = row.get("step", "")
    return int(step) if step.isdecimal() and len(step) < _MOST_DIGITS else math.inf


def _table(columns: list[str], rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()


def _text(x: float) -> str:
    return str(x) if isinstance(x, int) else repr(float(x))
