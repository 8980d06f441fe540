"""One run as the dashboard shows it, from the ends of its files, and the filter of runs."""

from __future__ import annotations

import contextlib
import json
import operator
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from jaxrl.config import ConfigError, text
from jaxrl.config.data_files import open_regular
from jaxrl.runs import records, storage
from jaxrl.runs.records import parse_row, suite_rows

_TAIL = 1 << 16  # bytes of the end of a file
_QUIET_SECONDS = 60.0
_QUIET_INTERVALS = 5
_LOG_LINES = 200
FILMS = (".gif", ".mp4")
EPISODES = (".html",)
_SHOWN = (
    "episode/return",
    "eval/return",
    "eval/success_rate",
    "env/success_rate",
    "time/steps_per_second",
    "time/budget_seconds",
)
_CUT = "eval/cut_off"  # a row has it only if there were such episodes
_STARTED = "started as "  # the line of train.log with the command
_CONDITION = re.compile(r"([\w.]+)(>=|<=|!=|=|>|<)(.*)")
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def tail(file: epath.Path) -> list[bytes]:
    """The last whole lines of a file; none if it cannot be read."""
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
        self._is_saved = False
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
                self._is_saved = seen[0] is None and records.is_saved_state(self.folder)
                if self._is_saved:
                    self.latest["step"] = max(records.checkpoint_steps(self.folder), default=0)
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
            if row.get("eval/return") is not None:
                self.latest[_CUT] = row.get(_CUT) or 0
            if row.get("time") is not None:
                times.append(row["time"])
        if len(times) > 1:
            self._interval = (times[-1] - times[0]) / (len(times) - 1)

    @property
    def state(self) -> str:
        """By summary.json, the process that holds the lock, and the age of the newest row.

        A process that has gone without saying that it stopped has failed: it crashed, or was killed. What
        `Trainer.save` wrote is no run.
        """
        if self._is_saved:
            return "saved"
        if self.summary is not None and (self.summary.get("steps") or 0) >= self.latest.get("step", 0):
            return "finished"
        import psutil

        process = records.lock_holder(self.folder)
        if process is not None and not psutil.pid_exists(process):
            said = b"\n".join(tail(self.folder / "train.log")[-3:])
            return "stopped" if b"stopped at step" in said else "failed"
        age = time.time() - self.latest.get("time", time.time())
        return "stalled" if age > max(_QUIET_SECONDS, _QUIET_INTERVALS * self._interval) else "running"

    @property
    def share(self) -> float | None:
        """The share used of the budget, of steps or seconds, that ends the run first; None without one."""
        used = {
            "step": records.step_budget(self.config),
            "time/budget_seconds": self.config.get("stop.seconds"),
        }
        parts = [self.latest.get(name, 0) / budget for name, budget in used.items() if budget]
        return min(max(parts), 1.0) if parts else None

    def row(self) -> dict[str, Any]:
        """The run in the table."""
        latest = self.latest
        summary = self.summary or {}
        state = "unreadable" if self.problem else self.state
        return {
            "name": self.name,
            "state": state,
            "problem": self.problem,
            "env": self.config.get("env.name"),
            "algorithm": self.config.get("algorithm"),
            "seed": self.config.get("seed"),
            "step": latest.get("step", 0),
            "budget": records.step_budget(self.config),
            # One that has ended by itself may have reached its return before its budget.
            "share": None if state in ("finished", "saved") else self.share,
            "return": latest.get("episode/return"),
            "eval": latest.get("eval/return", summary.get("eval_return")),
            "cut_off": latest.get(_CUT, summary.get("eval_cut_off")) or 0,
            "success": latest.get("eval/success_rate", latest.get("env/success_rate")),
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
        """Everything else about the run: log, checkpoints, suites by category, videos."""
        with storage.as_os_errors():
            log = [line.decode(errors="replace") for line in tail(self.folder / "train.log")]
            return {
                **self.row(),
                "config": dict(self.config),
                "summary": dict(self.summary or {}),
                "command": self._command(log),
                "log": [text.printable(line[:2000]) for line in log[-_LOG_LINES:]],
                "checkpoints": records.checkpoint_steps(self.folder),
                "suites": self._suites(),
                "films": sorted(self.files(FILMS)),
                "episodes": sorted(self.files(EPISODES)),
            }

    def _command(self, log: Sequence[str]) -> str | None:
        """The command that started the run, or resumed it last; None if it is not logged."""
        for line in reversed(log):
            if _STARTED in line:
                with contextlib.suppress(ValueError, AttributeError):
                    return str(json.loads(line.partition(_STARTED)[2]).get("command"))
        found = (self.summary or {}).get("command")
        return None if found is None else str(found)

    def _suites(self) -> list[dict[str, Any]]:
        place = self.folder / "evaluations"
        found = []
        for file in sorted(place.glob("suite-*.json")) if place.is_dir() else ():
            with contextlib.suppress(OSError, ConfigError):
                content = records.read_json(file)
                rows = [
                    {"mode": mode, "category": category, **{k: x for k, x in row.items() if k != "levels"}}
                    for mode, category, row in suite_rows(content)
                ]
                found.append({"name": content.get("suite"), "step": content.get("step"), "rows": rows})
        return found

    def files(self, suffixes: tuple[str, ...]) -> dict[str, epath.Path]:
        """Videos or pages of episodes in the run's folder, and in the pipeline that it is of, by name."""
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


def matches(query: str, row: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """True if a run satisfies all parts of a query.

    A word must occur in the run's name, environment, algorithm or state. A condition is on a field of the
    configuration, by its name or its last part, or on a column of the table; `=` and `!=` of text ask for a
    part of it, of numbers for equality.
    """
    return all(_holds(part, row, config) for part in query.split())


def _holds(part: str, row: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    found = _CONDITION.fullmatch(part)
    if found is None:
        shown = (str(row.get(name, "")).lower() for name in ("name", "env", "algorithm", "state"))
        return any(part.lower() in word for word in shown)
    name, sign, wanted = found.groups()
    if name in row or name in config:
        values = [row[name] if name in row else config[name]]
    else:
        values = [value for field, value in config.items() if field.endswith(f".{name}")]
    if sign == "!=":
        return bool(values) and not any(_equals(value, wanted) for value in values)
    if sign == "=":
        return any(_equals(value, wanted) for value in values)
    number = _number(wanted)
    numbers = [x for value in values if (x := _number(value)) is not None]
    return number is not None and any(_ORDER[sign](x, number) for x in numbers)


def _equals(value: Any, wanted: str) -> bool:
    number = _number(value)
    other = _number(wanted)
    if number is not None and other is not None:
        return number == other
    return wanted.lower() in str(value).lower()


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
