"""The runs of a folder, looked at again and again by a thread, and their filter."""

from __future__ import annotations

import itertools
import operator
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config import ConfigError, text
from jaxrl.config.data_files import read_objects
from jaxrl.config.declarations import settings
from jaxrl.diagnostics.dashboard.run_view import RunView
from jaxrl.diagnostics.dashboard.series import MetricSeries, band
from jaxrl.runs import records, storage
from jaxrl.runs.members import Lineage

_DEPTH = 7  # levels below the folder: a pipeline's search has its trials five levels down
_MOST_RUNS = 5000
_MOST_SERIES = 400  # that are kept in memory
_MOST_CURVES = 60  # runs in one picture
_FEW_FIELDS = 3  # that a label can hold
_SCAN_EVERY = 5  # looks between two searches for new runs
# Fields in which runs of one kind may differ.
_IGNORED_FIELDS = ("seed", "notes", "log.name", "log.project", "device_count", "num_devices")
_IGNORED_SECTIONS = ("derived", "storage", "profile")
_CONDITION = re.compile(r"([\w.]+)(>=|<=|!=|=|>|<)(.*)")
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class RunCollection:
    """Runs below a folder, local or gs://, by their path from it."""

    def __init__(self, folder: str, interval: float) -> None:
        """Takes the folder, and the seconds between two looks."""
        storage.prepare(folder)
        self._folder = epath.Path(folder)
        self._interval = interval
        self._runs: dict[str, RunView] = {}
        self._series: OrderedDict[tuple[str, str], MetricSeries] = OrderedDict()
        self._reading = threading.Lock()
        self._stopped = threading.Event()
        self._looks = 0

    def start(self) -> None:
        """Looks once, and from then on in a thread."""
        self.look()
        threading.Thread(target=self._watch, name="dashboard", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval):
            self.look()

    def look(self) -> None:
        """Finds new runs, and reads what has changed in all of them."""
        if self._looks % _SCAN_EVERY == 0:
            self._find()
        self._looks += 1
        for run in list(self._runs.values()):
            run.poll()

    def _find(self) -> None:
        try:
            with storage.as_os_errors():
                folders = list(itertools.islice(records.runs_below(self._folder, _DEPTH), _MOST_RUNS))
        except OSError:
            return  # The folder may come back; what is known stays.
        found: dict[str, RunView] = {}
        for folder in folders:
            name = str(folder.relative_to(self._folder))
            found[name] = self._runs.get(name) or RunView(name, folder)
        self._runs = found

    def run(self, name: str) -> RunView | None:
        return self._runs.get(name)

    def table(self, filter_: str) -> dict[str, Any]:
        """The rows of runs that satisfy a filter, and how many runs there are."""
        runs = list(self._runs.values())
        rows = [(run, run.row()) for run in runs]
        shown = [row for run, row in rows if matches(filter_, row, run.config)]
        return {"total": len(runs), "runs": sorted(shown, key=lambda row: (-(row["time"] or 0), row["name"]))}

    def metrics(self, names: Sequence[str]) -> list[str]:
        """The metrics that any of the named runs has."""
        found: set[str] = set()
        for run in self._runs_of(names):
            found |= run.metrics()
        return sorted({"episode/return", "eval/return"} | found)

    def curves(self, names: Sequence[str], metric: str) -> list[dict[str, Any]]:
        """A curve for each kind of run among the named ones: runs that differ in no more than the seed.

        Its `env` is the environment, for returns of different ones do not compare; its `stage_ends` are the
        steps at which a stage of one of them ended.
        """
        of_env: dict[str, list[RunView]] = {}
        for run in self._runs_of(names):
            of_env.setdefault(str(run.config.get("env.name", "unknown environment")), []).append(run)
        return [curve for env, runs in of_env.items() for curve in self._curves_of(env, runs, metric)]

    def _curves_of(self, env: str, runs: Sequence[RunView], metric: str) -> Iterator[dict[str, Any]]:
        configs = [settings(run.config) for run in runs]
        fields = _differences(configs)
        kinds: dict[tuple[str, ...], list[RunView]] = {}
        for run, config in zip(runs, configs, strict=True):
            kinds.setdefault(tuple(str(config.get(field)) for field in fields), []).append(run)
        for members in kinds.values():
            series = [self._curve(run, metric) for run in members]
            curve = band([points for points, _ in series])
            ends = sorted(set().union(*(ends for _, ends in series)))
            names = [run.name for run in members]
            label = _label(members, fields)
            yield {"env": env, "label": label, "runs": names, "stage_ends": ends, **_plain(curve)}

    def _curve(self, run: RunView, metric: str) -> tuple[tuple[np.ndarray, np.ndarray], set[float]]:
        """Steps and values of a metric, and the steps at which stages of the run ended."""
        with self._reading:
            key = run.name, metric
            series = self._series.pop(key, None) or MetricSeries(run.folder, metric)
            self._series[key] = series
            if len(self._series) > _MOST_SERIES:
                self._series.popitem(last=False)
            try:
                with storage.as_os_errors():
                    return series.poll(), set(series.stage_ends)
            except OSError:
                return (np.empty(0), np.empty(0)), set()

    def difference(self, names: Sequence[str]) -> dict[str, Any]:
        """The fields in which the named runs differ, with the value of each run."""
        runs = self._runs_of(names)
        fields = sorted({field for run in runs for field in run.config})
        rows = []
        for field in fields:
            values = [run.config.get(field) for run in runs]
            if not field.startswith("derived.") and any(value != values[0] for value in values[1:]):
                rows.append({"field": field, "values": values})
        return {"runs": [run.name for run in runs], "rows": rows}

    def searches(self) -> list[str]:
        """The folders of searches, by path, with trials among the known runs."""
        places = {
            str(epath.Path(name).parent.parent)
            for name in self._runs
            if epath.Path(name).parent.name == "trials"
        }
        return sorted(place for place in places if (self._folder / place / "trials.jsonl").exists())

    def trials(self, search: str) -> dict[str, Any]:
        """The trials of a search, for parallel coordinates; empty if there is no such search."""
        if search not in self.searches():
            return {"fields": [], "trials": [], "copies": []}
        found: dict[int, dict[str, Any]] = {}
        try:
            for record in read_objects(self._folder / search / "trials.jsonl"):
                if isinstance(record.get("number"), int) and isinstance(record.get("values"), Mapping):
                    found[record["number"]] = record
            copies = [_copy_of(record) for record in Lineage.of(self._folder / search).read()]
        except OSError:
            return {"fields": [], "trials": [], "copies": []}
        fields = sorted({str(field) for record in found.values() for field in record["values"]})
        rows = [
            {"number": n, "state": str(r.get("state")), "score": r.get("score"), "values": r["values"]}
            for n, r in sorted(found.items())
        ]
        return {"fields": fields, "trials": rows, "copies": copies}

    def _runs_of(self, names: Sequence[str]) -> list[RunView]:
        return [self._runs[name] for name in dict.fromkeys(names) if name in self._runs][:_MOST_CURVES]


def _differences(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Fields in which runs differ, except fields that do not define the kind of a run."""
    fields = sorted({field for config in configs for field in config})
    return [
        field
        for field in fields
        if field not in _IGNORED_FIELDS
        and field.partition(".")[0] not in _IGNORED_SECTIONS
        and len({str(config.get(field)) for config in configs}) > 1
    ]


def _copy_of(record: Mapping[str, Any]) -> dict[str, Any]:
    names = ("step", "member", "source", "score", "source_score", "values")
    return {name: record.get(name) for name in names}


def _label(members: Sequence[RunView], fields: Sequence[str]) -> str:
    """The name of a run, or the beginning of several seeds' names, and the fields in which it differs."""
    name = members[0].name
    if len(members) > 1:
        # Of cart_10 and cart_11 it is cart, which is no folder.
        common = os.path.commonprefix([run.name for run in members])  # noqa: RUF071
        common = re.sub(r"\d*$", "", common).rstrip("/_-. ")
        seeds = {run.config.get("seed") for run in members}
        kind = "seeds" if len(seeds) == len(members) else "runs"
        name = f"{common or name + ', …'} ({len(members)} {kind})"
    said = ", ".join(f"{field}={_short(members[0].config.get(field))}" for field in fields)
    return f"{name}: {said}" if 0 < len(fields) <= _FEW_FIELDS else name


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(curve: Mapping[str, list[float]]) -> dict[str, list[float | None]]:
    """Numbers in a precision that a picture shows; what is not finite, which JSON has not, as None."""
    return {
        name: [None if not np.isfinite(x) else float(f"{x:.6g}") for x in values]
        for name, values in curve.items()
    }


def require_folder(folder: str) -> None:
    """Raises ConfigError unless there is such a folder; runs may come later."""
    storage.require_reachable("DIR", folder)
    records.require_place(folder)
    if set(folder) & set("*?[") and not epath.Path(folder).is_dir():
        raise ConfigError(f"`DIR` (={text.printable(folder)!r}) must be one folder, not a pattern")


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
    values = [row[name]] if name in row else _values(name, config)
    if sign == "!=":
        return bool(values) and not any(_equals(value, wanted) for value in values)
    if sign == "=":
        return any(_equals(value, wanted) for value in values)
    number = _number(wanted)
    numbers = [x for value in values if (x := _number(value)) is not None]
    return number is not None and any(_ORDER[sign](x, number) for x in numbers)


def _values(name: str, config: Mapping[str, Any]) -> list[Any]:
    if name in config:
        return [config[name]]
    return [value for field, value in config.items() if field.endswith(f".{name}")]


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
