"""One run as it trains, from the files that it writes; local or gs://."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from etils import epath

from jaxrl.config.errors import ConfigError
from jaxrl.metrics import text
from jaxrl.metrics.display.board import Curve
from jaxrl.runs import records, storage
from jaxrl.runs.records import MetricsTail, Row

CURVES = ("episode/return", "eval/return", "time/steps_per_second")
# Rows over which the pace is measured, evaluations and saves included.
_PACE_ROWS = 20
# Without a row for so many intervals between rows, and so many seconds, something is wrong.
_QUIET_INTERVALS, _QUIET_SECONDS = 5, 60


class Followed:
    """A run folder that is read again and again.

    Attributes:
      path: where.
      config: config.json by dotted name; empty until it is there.
      latest: the latest value of every metric.
      curves: histories of the metrics that are drawn.
      problem: why it could not be read the last time, or "".
    """

    def __init__(self, path: str, now: Callable[[], float] = time.time) -> None:
        """`now` is in seconds since 1970, as the rows are."""
        self.path = path
        self.config: dict[str, Any] = {}
        self.problem = ""
        self._folder = epath.Path(path)
        self._now = now
        self._tail = MetricsTail(self._folder)
        self._summary: dict[str, Any] | None = None
        self._process: _Process | None = None
        self._forget()

    def _forget(self) -> None:
        self.latest: Row = {}
        self.curves = {key: Curve() for key in CURVES}
        self._rows: deque[tuple[float, int]] = deque(maxlen=_PACE_ROWS)

    def poll(self) -> None:
        """Reads what is new; what cannot be read becomes the `problem`."""
        try:
            with storage.as_os_errors():
                replaced, rows = self._tail.poll()
                if not self.config or rows:
                    self.config = records.flatten(records.read_json(self._folder / "config.json"))
                if not self.done or rows:  # It comes after the last row.
                    summary = self._folder / "summary.json"
                    self._summary = records.read_json(summary) if summary.exists() else None
                holder = _holder(self._folder)
                if holder != (self._process and self._process.pid):
                    self._process = _Process(holder) if holder else None
        except (OSError, ConfigError) as error:
            self.problem = str(error)
            return
        self.problem = ""
        if replaced:
            self._forget()
        for row in rows:
            self._take(row)
        if self._process is not None:
            self._process.read()

    def _take(self, row: Row) -> None:
        self.latest |= {key: value for key, value in row.items() if value is not None}
        for key, curve in self.curves.items():
            if row.get(key) is not None:
                curve.append(row[key])
        if "time/steps_per_second" in row:
            self._rows.append((row["time"], row["step"]))

    @property
    def title(self) -> str:
        return f"{self.config.get('env.name', '?')}  seed {self.config.get('seed', '?')}"

    @property
    def steps(self) -> int:
        return int(self.latest.get("step", 0))

    @property
    def total_steps(self) -> int:
        """The budget, in whole iterations."""
        config = self.config
        whole = config.get("derived.num_iterations", 0) * config.get("derived.steps_per_iteration", 0)
        return int(whole or config.get("stop.steps", 0))

    @property
    def fraction(self) -> float:
        """How much of the budget is used, in [0, 1]; of several budgets the one that ends first."""
        parts = [self.steps / self.total_steps] if self.total_steps else [0.0]
        if budget := self.config.get("stop.seconds"):
            parts.append(self.latest.get("time/seconds", 0.0) / budget)
        return min(max(parts), 1.0)

    @property
    def done(self) -> bool:
        """Whether it ended by itself; a summary of fewer steps is that of an earlier, shorter budget."""
        return self._summary is not None and self._summary.get("steps", 0) >= self.steps

    @property
    def state(self) -> str:
        """In a few words."""
        if self.problem:
            return "unreadable"
        if self.done and self._summary is not None:
            return f"done: {self._summary.get('stop_reason', '')}"
        if self._process is not None and not self._process.alive:
            return "stopped"
        if not self.latest:
            return "starting"
        age = self.age or 0.0
        quiet = age > max(_QUIET_SECONDS, _QUIET_INTERVALS * self._interval())
        return f"quiet for {text.seconds(age)}" if quiet else "training"

    @property
    def age(self) -> float | None:
        """Seconds since the latest row."""
        return max(self._now() - self.latest["time"], 0.0) if "time" in self.latest else None

    @property
    def remaining(self) -> float | None:
        """Seconds until the budget in steps is used up at the present pace."""
        if self.done or len(self._rows) < 2:
            return None
        (first, start), (last, end) = self._rows[0], self._rows[-1]
        if end <= start or last <= first:
            return None
        return max((self.total_steps - end) * (last - first) / (end - start) - (self.age or 0.0), 0.0)

    @property
    def host(self) -> tuple[float | None, float | None]:
        """(share of the cores, bytes): of the process where it runs here, else as it logged them."""
        if self._process is not None and self._process.alive:
            return self._process.share, self._process.memory
        return self.latest.get("host/cpu_utilization"), self.latest.get("host/peak_memory_bytes")

    @property
    def device(self) -> tuple[float | None, float | None]:
        """(share of the time, bytes) of the devices, as it logged them."""
        return self.latest.get("device/utilization"), self.latest.get("device/peak_memory_bytes")

    def _interval(self) -> float:
        """Seconds between rows."""
        if len(self._rows) < 2:
            return 0.0
        return (self._rows[-1][0] - self._rows[0][0]) / (len(self._rows) - 1)


def _holder(folder: epath.Path) -> int | None:
    """The process that has, or had, the run's lock; None where it is on another machine, or no lock tells."""
    if storage.is_remote(folder):
        return None
    try:
        words = (folder / ".lock").read_text().split()
    except OSError:
        return None
    here = len(words) == 4 and words[3] == socket.gethostname()
    return int(words[1]) if here and words[1].isdigit() else None


class _Process:
    """The process that holds a run's lock on this machine."""

    def __init__(self, pid: int) -> None:
        import psutil

        self.pid, self.alive = pid, True
        self.share: float | None = None
        self.memory: float | None = None
        try:
            self._process: Any = psutil.Process(pid)
            self._process.cpu_percent()
        except psutil.Error:
            self._process, self.alive = None, False

    def read(self) -> None:
        import psutil

        if self._process is None:
            return
        try:
            self.alive = self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
            cores = len(self._process.cpu_affinity()) if hasattr(self._process, "cpu_affinity") else 1
            self.share = self._process.cpu_percent() / 100 / cores
            self.memory = self._process.memory_info().rss
        except psutil.Error:
            self.alive = False
