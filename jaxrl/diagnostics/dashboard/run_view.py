"""One run as the dashboard shows it: its state and latest numbers, from the ends of its files."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any

from etils import epath

from jaxrl.config import ConfigError, text
from jaxrl.config.data_files import open_regular
from jaxrl.runs import records, storage
from jaxrl.runs.evaluations import suite_rows
from jaxrl.runs.records import parse_row

RUNNING = "running"
STOPPED = "stopped"
STALLED = "stalled"
FAILED = "failed"
FINISHED = "finished"
_TAIL = 1 << 16  # bytes of the end of a file
_QUIET_SECONDS = 60.0
_QUIET_INTERVALS = 5
_LOG_LINES = 200
FILMS = (".gif", ".mp4")
EPISODES = (".html",)
_SHOWN = ("episode/return", "eval/return", "time/steps_per_second", "env/success_rate")


def tail(file: epath.Path) -> list[bytes]:
    """The last whole lines of a file; none where it cannot be read."""
    try:
        with storage.as_os_errors(), open_regular(file) as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - _TAIL))
            data = stream.read()
    except OSError:
        return []
    lines = data.split(b"\n")[:-1]
    return lines[1:] if size > _TAIL else lines


class RunView:
    """A run folder that is looked at repeatedly.

    Attributes:
      name: its path from the folder of the dashboard.
      config: fields by dotted name.
      summary: of a run that has ended; or None.
      latest: the newest value of each metric that the table shows, with `step` and `time`.
    """

    def __init__(self, name: str, folder: epath.Path) -> None:
        self.name = name
        self.folder = folder
        self.config: Mapping[str, Any] = {}
        self.summary: Mapping[str, Any] | None = None
        self.latest: dict[str, float] = {}
        self.problem = ""
        self._interval = 0.0
        self._seen: tuple[Any, ...] = ()

    def poll(self) -> None:
        """Reads what has changed; a failure becomes the `problem`."""
        self.problem = ""
        try:
            with storage.as_os_errors():
                seen = tuple(
                    _stamp(self.folder / name) for name in ("metrics.jsonl", "summary.json", "config.json")
                )
                if seen == self._seen:
                    return
                self.config = records.read_config(self.folder)
                self.summary = records.read_summary(self.folder)
                self._read_rows()
                self._seen = seen
        except (OSError, ConfigError) as error:
            self.problem = text.one_line(error)

    def _read_rows(self) -> None:
        times = []
        for line in tail(self.folder / "metrics.jsonl"):
            if (row := parse_row(line)) is None:
                continue
            for name in ("step", "time", *_SHOWN):
                if row.get(name) is not None:
                    self.latest[name] = row[name]
            if row.get("time") is not None:
                times.append(row["time"])
        if len(times) > 1:
            self._interval = (times[-1] - times[0]) / (len(times) - 1)

    @property
    def state(self) -> str:
        """By summary.json, the process that holds the lock, and the age of the newest row.

        A process that has gone without saying that it stopped has failed: it crashed, or was killed.
        """
        if self.summary is not None and (self.summary.get("steps") or 0) >= self.latest.get("step", 0):
            return FINISHED
        alive = _is_alive(self.folder)
        if alive is False:
            said = b"\n".join(tail(self.folder / "train.log")[-3:])
            return STOPPED if b"stopped at step" in said else FAILED
        age = time.time() - self.latest.get("time", time.time())
        return STALLED if age > max(_QUIET_SECONDS, _QUIET_INTERVALS * self._interval) else RUNNING

    def row(self) -> dict[str, Any]:
        """The run in the table."""
        latest = self.latest
        summary = self.summary or {}
        returned = latest.get("eval/return", summary.get("eval_return"))
        return {
            "name": self.name,
            "state": "unreadable" if self.problem else self.state,
            "problem": self.problem,
            "env": self.config.get("env.name"),
            "algorithm": self.config.get("algorithm"),
            "seed": self.config.get("seed"),
            "step": latest.get("step", 0),
            "budget": records.step_budget(self.config),
            "return": latest.get("episode/return"),
            "eval": returned,
            "success": latest.get("env/success_rate"),
            "rate": latest.get("time/steps_per_second"),
            "time": latest.get("time"),
        }

    def metrics(self) -> set[str]:
        """The names of metrics in the newest rows."""
        found: set[str] = set()
        for line in tail(self.folder / "metrics.jsonl"):
            found |= set(parse_row(line) or ())
        return found - {"step", "time", "steps", "updates"}

    def detail(self) -> dict[str, Any]:
        """Everything else about the run: log, checkpoints, suites by category, films."""
        with storage.as_os_errors():
            log = [line.decode(errors="replace") for line in tail(self.folder / "train.log")]
            place = self.folder / "checkpoints"
            names = [found.name for found in place.iterdir()] if place.is_dir() else []
            return {
                **self.row(),
                "config": dict(self.config),
                "summary": dict(self.summary or {}),
                "log": [text.printable(line[:2000]) for line in log[-_LOG_LINES:]],
                "checkpoints": sorted(int(name) for name in names if re.fullmatch(r"[0-9]{1,15}", name)),
                "suites": self._suites(),
                "films": sorted(self.files(FILMS)),
                "episodes": sorted(self.files(EPISODES)),
            }

    def _suites(self) -> list[dict[str, Any]]:
        place = self.folder / "evaluations"
        found = []
        files = sorted(place.glob("suite-*.json")) if place.is_dir() else []
        for file in files:
            with contextlib.suppress(OSError, ConfigError):
                content = records.read_json(file)
                rows = [
                    {"mode": mode, "category": category, **{k: x for k, x in row.items() if k != "levels"}}
                    for mode, category, row in suite_rows(content)
                ]
                found.append({"name": content.get("suite"), "step": content.get("step"), "rows": rows})
        return found

    def files(self, suffixes: tuple[str, ...]) -> dict[str, epath.Path]:
        """Films or pages of episodes in the run's folder, and in the pipeline that it is of, by name."""
        places = [self.folder, self.folder / "evaluations", self.folder / "videos"]
        if (self.folder.parent.parent / "state.json").exists():
            places.append(self.folder.parent.parent / "visualize")
        return {
            file.name: file
            for place in places
            if place.is_dir()
            for file in sorted(place.iterdir())
            if file.suffix in suffixes and file.is_file()
        }


def _stamp(file: epath.Path) -> Any:
    """Changes when a file does; None if there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.length, found.mtime


def _is_alive(folder: epath.Path) -> bool | None:
    """True if the process that last had the run's lock still runs; None if that is unknown."""
    if (process := records.lock_holder(folder)) is None:
        return None
    import psutil

    return psutil.pid_exists(process)
