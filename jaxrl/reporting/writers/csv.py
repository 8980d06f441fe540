"""Metrics as one table for spreadsheets."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from jaxrl.config.data_files import LARGEST_LOG, read_bytes
from jaxrl.config.local_files import no_link, replace_text
from jaxrl.reporting.writers.jsonl import EVALUATION, is_evaluated_again
from jaxrl.reporting.writers.writer import Writer

_MOST_DIGITS = 20  # of a step


class CsvWriter(Writer):
    """Writes `step,time,KEY,...` with a row per call, and an empty cell for a key that a row lacks.

    A new key becomes the last column, and the file is rewritten for it. Rows leave the process before
    `write` returns. As with `JsonlWriter`, a new run drops the rows of an earlier one, and a resumed run
    keeps the rows up to the restored step.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Takes the path of a local file, whose folder must exist; the first row creates it."""
        self._path = Path(path)
        self._start_step = 0
        self._columns: list[str] | None = None  # None until the file has been read

    def resume_from(self, step: int) -> None:
        self._columns = None
        self._start_step = step

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        row = {"step": str(step), "time": f"{time.time():.3f}"} | {k: _text(x) for k, x in scalars.items()}
        known = self._columns
        if known is not None and self._path.exists() and row.keys() <= set(known):
            with open(self._path, "a", encoding="utf-8", newline="", opener=no_link) as file:
                file.write(_table(known, [row]))
            return
        again = is_evaluated_again(step, self._start_step, scalars)
        rows = self._read_kept(again) if known is None else _read(self._path)
        columns = list(dict.fromkeys(name for kept in (*rows, row) for name in kept))
        header = dict(zip(columns, columns, strict=True))
        replace_text(self._path, _table(columns, [header, *rows, row]))
        self._columns = columns

    def _read_kept(self, without_evaluation: bool) -> list[dict[str, str]]:
        kept = [row for row in _read(self._path) if _step_of(row) <= self._start_step]
        if not without_evaluation:
            return kept
        return [row for row in kept if _step_of(row) < self._start_step or not row.get(EVALUATION)]


def _read(path: Path) -> list[dict[str, str]]:
    """The rows of a file, without a last row that a crash cut short."""
    if not path.exists():
        return []
    text = read_bytes(path, LARGEST_LOG).decode(errors="replace").replace("\0", "")
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
