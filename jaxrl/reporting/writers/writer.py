"""The interface of metrics writers, several as one, and files with a row per step: JSON lines, a table."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from jaxrl.config.data_files import LARGEST_LOG, is_number, parse_line, read_bytes, read_lines
from jaxrl.config.local_files import no_link, replace_text, replacing

_log = logging.getLogger(__name__)

EVALUATION = "eval/return"  # in the rows of evaluations, and in no other
_MOST_DIGITS = 20  # of a step in a table


class Writer:
    """A receiver of the metrics of a run. A writer defines `write`, and other methods as it needs them."""

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Records one row; `step` counts environment steps and decreases only after `resume_from`."""
        raise NotImplementedError

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        """Records distributions, each given by its values; few writers support them."""

    def resume_from(self, step: int) -> None:
        """Announces that a run continues from `step`, resumed or rolled back: later rows will be repeated."""

    def status(self, phase: str) -> None:
        """Shows the user the phase that begins now, such as "compiling"."""

    def message(self, line: str) -> None:
        """Shows the user a line that is neither a metric nor a warning."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Reports the end of training, with the content of summary.json."""

    def flush(self) -> None:
        """Makes everything written so far durable."""

    def close(self) -> None:
        """Flushes and releases everything; nothing is written afterwards."""


class MultiWriter(Writer):
    """Passes every call on to several writers.

    The first failure of a writer (a full disk, a lost network folder, an unsupported value) is logged as a
    warning, and the next call tries again: lost metrics must not end a run, nor hide the reason of its end.
    """

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._writers = tuple(writers)
        self._warned: set[int] = set()

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._each(lambda writer: writer.write(step, scalars))

    def histograms(self, step: int, samples: Mapping[str, Sequence[float]]) -> None:
        finite = finite_samples(samples)
        self._each(lambda writer: writer.histograms(step, finite))

    def resume_from(self, step: int) -> None:
        self._each(lambda writer: writer.resume_from(step))

    def status(self, phase: str) -> None:
        self._each(lambda writer: writer.status(phase))

    def message(self, line: str) -> None:
        self._each(lambda writer: writer.message(line))

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._each(lambda writer: writer.finish(summary))

    def flush(self) -> None:
        self._each(lambda writer: writer.flush())

    def close(self) -> None:
        self._each(lambda writer: writer.close())

    def _each(self, call: Callable[[Writer], None]) -> None:
        for writer in self._writers:
            try:
                call(writer)
            except NotImplementedError:
                raise  # It is no writer.
            except Exception as error:
                if id(writer) not in self._warned:
                    self._warned.add(id(writer))
                    reason = " ".join(str(error).split()) or type(error).__name__
                    _log.warning("%s lost metrics, training continues: %s", type(writer).__name__, reason)


def finite_samples(samples: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    """The finite values of each distribution that has any: bins cannot hold other values."""
    finite = {name: [x for x in values if math.isfinite(x)] for name, values in samples.items()}
    return {name: values for name, values in finite.items() if values}


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
            _truncate_after(
                self._path, self._start_step, _is_evaluated_again(step, self._start_step, scalars)
            )
            self._file = open(self._path, "a", encoding="utf-8", buffering=1, opener=no_link)  # noqa: SIM115
        row = {"step": step, "time": time.time()} | {name: _finite(x) for name, x in scalars.items()}
        self._file.write(json.dumps(row, allow_nan=False) + "\n")

    def flush(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _is_evaluated_again(step: int, start_step: int, scalars: Mapping[str, float]) -> bool:
    """True if a run that resumes from `start_step` opens with an evaluation, which it owed."""
    return step == start_step and EVALUATION in scalars


def _truncate_after(path: Path, step: int, evaluation: bool) -> None:
    """Drops the rows of a metrics file after `step`, and a last row that a crash cut short.

    With `evaluation` also the row of an evaluation at `step`. The file is replaced at once; a missing one is
    not created. Lines that are not rows are appended to a file beside it, with a warning.
    """
    if not path.exists():
        return
    lines = read_lines(path)
    steps = [(line, _step_of_line(line)) for line in lines if line.endswith(b"\n")]
    if damaged := [line for line, at in steps if at is None]:
        aside = path.with_name(f"{path.name}.damaged")
        with open(aside, "ab", opener=no_link) as file:
            file.writelines(damaged)
        _log.warning("%d lines of %s are no rows: they are now in %s", len(damaged), path, aside)
    kept = [(line, at) for line, at in steps if at is not None and at <= step]
    if evaluation:
        kept = [(line, at) for line, at in kept if at != step or EVALUATION not in (parse_line(line) or {})]
    if len(kept) < len(lines):
        with replacing(path) as stream:
            stream.writelines(line for line, _ in kept)


def _step_of_line(line: bytes) -> float | None:
    row = parse_line(line)
    return float(row["step"]) if row is not None and is_number(row.get("step")) else None


def _finite(x: float) -> int | float | None:
    return x if isinstance(x, int) or math.isfinite(x := float(x)) else None


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
        cells = {name: str(x) if isinstance(x, int) else repr(float(x)) for name, x in scalars.items()}
        row = {"step": str(step), "time": f"{time.time():.3f}"} | cells
        known = self._columns
        if known is not None and self._path.exists() and row.keys() <= set(known):
            with open(self._path, "a", encoding="utf-8", newline="", opener=no_link) as file:
                file.write(_table(known, [row]))
            return
        rows = _read_table(self._path)
        if known is None:
            again = _is_evaluated_again(step, self._start_step, scalars)
            rows = [row for row in rows if self._is_kept(row, again)]
        columns = list(dict.fromkeys(name for kept in (*rows, row) for name in kept))
        header = dict(zip(columns, columns, strict=True))
        replace_text(self._path, _table(columns, [header, *rows, row]))
        self._columns = columns

    def _is_kept(self, row: Mapping[str, str], without_evaluation: bool) -> bool:
        text = row.get("step", "")
        step = int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else math.inf
        repeated = without_evaluation and step == self._start_step and row.get(EVALUATION)
        return step <= self._start_step and not repeated


def _read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a file, without a last row that a crash cut short."""
    if not path.exists():
        return []
    text = read_bytes(path, LARGEST_LOG).decode(errors="replace").replace("\0", "")
    rows = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
    # More cells than columns, or fewer, are damage.
    return [row for row in rows if None not in row and None not in row.values()]


def _table(columns: list[str], rows: list[dict[str, str]]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue()
