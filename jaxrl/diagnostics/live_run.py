"""Runs as they train, from the files that they write; local or gs://."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from jaxrl.config import ConfigError, text
from jaxrl.reporting.display.progress import PACE, RunProgress
from jaxrl.runs import records, storage
from jaxrl.runs.records import MetricsTail, Row

# Rows of training over which the interval between two is measured.
_INTERVAL_ROWS = 20
# A run is quiet after this many intervals, and this many seconds, without a row.
_QUIET_INTERVALS = 5
_QUIET_SECONDS = 60
_MAX_HIGHLIGHTS = 9


class LiveRun:
    """A run folder that is read repeatedly; `now` is a clock in seconds since 1970, like the times of rows.

    Attributes:
      progress: its state by config.json and the rows. Its phase is `starting`, `training`, `quiet for ...`,
        `stopped` (the process is gone), `unreadable`, `saved` or `done: ...`.
      problem: the reason why the last reading failed, or "".
    """

    def __init__(self, path: str, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self.problem = ""
        self._folder = epath.Path(path)
        self._now = now
        self._tail = MetricsTail(self._folder)
        self._config: dict[str, Any] = {}
        self._summary: dict[str, Any] | None = None
        self._process: _Process | None = None
        self._forget()

    def _forget(self) -> None:
        self.progress = RunProgress("?", "", None, None, now=self._now)
        self._latest_time: float | None = None
        self._times: deque[float] = deque(maxlen=_INTERVAL_ROWS)

    def poll(self) -> None:
        """Reads new rows and files; a failure becomes the `problem`."""
        self.problem = ""
        try:
            with storage.as_os_errors():
                replaced, rows = self._tail.poll()
                if not self._config or rows:
                    self._config = records.read_config(self._folder)
                if not self.done or rows:  # It comes after the last row.
                    self._summary = records.read_summary(self._folder)
                holder = records.lock_holder(self._folder)
                if holder != (self._process and self._process.pid):
                    self._process = _Process(holder) if holder else None
        except (OSError, ConfigError) as error:
            self.problem = str(error)
        else:
            if replaced:
                self._forget()
            self._describe(self._config)
            for row in rows:
                if row.get("time") is not None:
                    self._take(row)
            if self._process is not None:
                self._process.read()
        self._set_phase()

    def _describe(self, config: Mapping[str, Any]) -> None:
        title = f"{config.get('env.name', '?')}  seed {config.get('seed', '?')}"
        budget = records.step_budget(config), config.get("stop.seconds")
        self.progress.describe(text.printable(title), *budget, str(config.get("derived.clock", "steps")))

    def _take(self, row: Row) -> None:
        scalars = {key: x for key, x in row.items() if x is not None and key not in ("step", "time")}
        self.progress.update(int(row["step"]), scalars, at=row["time"])
        self._latest_time = row["time"]
        if PACE in row:
            self._times.append(row["time"])
            self.progress.show(self._highlights())

    def _highlights(self) -> list[tuple[str, str]]:
        """The losses, what the algorithm logs under its own name, and the norm of the gradient."""
        found = []
        for wanted in ("loss", self._config.get("algorithm")):
            for key in self.progress.latest:
                group, _, name = key.partition("/")
                if group == wanted and name != "updates" and "/" not in name:
                    found.append((key, text.printable(name.replace("_", " "))))
        if "grad/norm" in self.progress.latest:
            found.append(("grad/norm", "grad norm"))
        return found[:_MAX_HIGHLIGHTS]

    def _set_phase(self) -> None:
        end = self._end()
        if end:
            self.progress.finish(end, self._latest_time)
        elif self.age is None:
            self.progress.enter("starting")
        else:
            times = self._times
            interval = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0
            quiet = self.age > max(_QUIET_SECONDS, _QUIET_INTERVALS * interval)
            self.progress.enter(f"quiet for {text.seconds(self.age)}" if quiet else "training")

    def _end(self) -> str:
        """Why no more rows are expected, or ""."""
        if self.problem:
            return "unreadable"
        if self.done and self._summary is not None:
            return f"done: {text.printable(str(self._summary.get('stop_reason', '')))}"
        if self._process is not None and not self._process.alive:
            return "stopped"
        return "saved" if self._latest_time is None and records.is_saved_state(self._folder) else ""

    @property
    def done(self) -> bool:
        """True if it ended by itself; a summary of fewer steps belongs to an earlier, shorter budget."""
        return self._summary is not None and (self._summary.get("steps") or 0) >= self.progress.steps

    @property
    def age(self) -> float | None:
        """Seconds since the latest row; None before the first."""
        return None if self._latest_time is None else max(self._now() - self._latest_time, 0.0)

    @property
    def host(self) -> tuple[float | None, float | None]:
        """(share of the cores, bytes): of the process if it runs here, else as the run logged them."""
        if self._process is not None and self._process.alive:
            return self._process.share, self._process.memory
        latest = self.progress.latest
        return latest.get("host/cpu_utilization"), latest.get("host/peak_memory_bytes")

    @property
    def device(self) -> tuple[float | None, float | None]:
        """(share of the time, bytes) of the devices, as the run logged them."""
        latest = self.progress.latest
        return latest.get("device/utilization"), latest.get("device/peak_memory_bytes")


class Watcher:
    """The runs in the folders `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._found: dict[str, LiveRun] = {}

    @property
    def runs(self) -> list[LiveRun]:
        return list(self._found.values())

    def look(self) -> None:
        """Finds new runs, and reads the new rows of each."""
        for name in self._names:
            with contextlib.suppress(ConfigError, OSError):  # no run yet, or the network is down
                for path in records.find([name]):
                    if path not in self._found:
                        self._found[path] = LiveRun(path)
        for run in self._found.values():
            run.poll()


class _Process:
    """The process that holds a run's lock on this machine."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.alive = True
        self.share: float | None = None
        self.memory: float | None = None
        self._process: Any = None

    def read(self) -> None:
        import psutil

        if not self.alive:
            return
        try:
            if self._process is None:
                self._process = psutil.Process(self.pid)
                self._process.cpu_percent()  # The first call starts the interval that the next one reports.
            process = self._process
            self.alive = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
            cores = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else 1
            self.share = process.cpu_percent() / 100 / cores
            self.memory = process.memory_info().rss
        except psutil.Error:
            self.alive = False
