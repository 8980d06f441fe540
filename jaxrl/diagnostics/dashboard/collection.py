"""The runs of a folder, looked at again and again by a thread, and the curves of their metrics."""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config import ConfigError, text
from jaxrl.config.data_files import read_objects
from jaxrl.config.declarations import settings
from jaxrl.diagnostics.dashboard.run_view import RunView, matches
from jaxrl.runs import records, storage
from jaxrl.runs.members import Lineage
from jaxrl.runs.stage_ends import StageEnds, StageLines

_DEPTH = 7  # levels below the folder: a pipeline's search has its trials five levels down
_MOST_RUNS = 5000
_MOST_SERIES = 400  # that are kept in memory
_MOST_CURVES = 60  # runs in one picture
_MOST_POINTS = 2000  # of a curve, that are kept
_BAND_POINTS = 300  # of the curve of several seeds
_FEW_FIELDS = 3  # that a label can hold
_SCAN_EVERY = 5  # looks between two searches for new runs
# Of a copy of one member's policy to another, as shown.
_COPY = ("step", "member", "source", "score", "source_score", "values")
# Fields in which runs of one kind may differ.
_IGNORED_FIELDS = ("seed", "notes", "log.name", "log.project", "device_count", "num_devices")
_IGNORED_SECTIONS = ("derived", "storage", "profile")


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
            curve = band([points for points, _ in series]).items()
            yield {
                "env": env,
                "label": _label(members, fields),
                "runs": [run.name for run in members],
                "stage_ends": sorted(set().union(*(ends for _, ends in series))),
                # In a precision that a picture shows.
                **{name: [float(f"{x:.6g}") for x in values] for name, values in curve},
            }

    def _curve(self, run: RunView, metric: str) -> tuple[tuple[np.ndarray, np.ndarray], set[float]]:
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
        rows = []
        for field in sorted({field for run in runs for field in run.config}):
            values = [run.config.get(field) for run in runs]
            if not field.startswith("derived.") and any(value != values[0] for value in values[1:]):
                rows.append({"field": field, "values": values})
        return {"runs": [run.name for run in runs], "rows": rows}

    def searches(self) -> list[str]:
        """The folders of searches, by path, with trials among the known runs."""
        parents = {epath.Path(name).parent for name in self._runs}
        places = {str(parent.parent) for parent in parents if parent.name == "trials"}
        return sorted(place for place in places if (self._folder / place / "trials.jsonl").exists())

    def trials(self, search: str) -> dict[str, Any]:
        """The trials of a search, for parallel coordinates; empty if there is no such search."""
        found: dict[int, dict[str, Any]] = {}
        copies = []
        is_known = search in self.searches()
        try:
            if is_known:
                for record in read_objects(self._folder / search / "trials.jsonl"):
                    if isinstance(record.get("number"), int) and isinstance(record.get("values"), Mapping):
                        found[record["number"]] = record
                lineage = Lineage.of(self._folder / search).read()
                copies = [{name: record.get(name) for name in _COPY} for record in lineage]
        except OSError:
            found = {}
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
    return [
        field
        for field in sorted({field for config in configs for field in config})
        if field not in _IGNORED_FIELDS
        and field.partition(".")[0] not in _IGNORED_SECTIONS
        and len({str(config.get(field)) for config in configs}) > 1
    ]


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
    values = [members[0].config.get(field) for field in fields]
    shown = [f"{value:.4g}" if isinstance(value, float) else str(value) for value in values]
    said = ", ".join(f"{field}={value}" for field, value in zip(fields, shown, strict=True))
    return f"{name}: {said}" if 0 < len(fields) <= _FEW_FIELDS else name


def require_folder(folder: str) -> None:
    """Raises ConfigError unless there is such a folder; runs may come later."""
    storage.require_reachable("DIR", folder)
    records.require_place(folder)
    if set(folder) & set("*?[") and not epath.Path(folder).is_dir():
        raise ConfigError(f"`DIR` (={text.printable(folder)!r}) must be one folder, not a pattern")


class MetricSeries:
    """A metric of one run, every `stride`-th row that has it; only these lines are parsed.

    Where more rows come than are kept, every second point goes and the stride doubles.
    """

    def __init__(self, folder: epath.Path, metric: str) -> None:
        self._tail = records.MetricsTail(folder)
        self._metric = metric
        self._key = f'"{metric}":'.encode()
        self._clear()

    def _clear(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._seen = 0
        self._stride = 1
        self._ends = StageEnds()
        self._stage_lines = StageLines()

    @property
    def stage_ends(self) -> set[float]:
        """The steps up to now at which stages of the run ended, see `Run.stage_ends`."""
        return self._ends.steps

    def poll(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values up to now, float64; raises OSError if the file cannot be read."""
        replaced, lines = self._tail.poll_lines()
        if replaced:
            self._clear()
        for line in lines:
            for changed in self._stage_lines.changed_lines(line):
                if (row := records.parse_row(changed)) is not None:
                    self._ends.add(row)
        lines = [line for line in lines if self._key in line]
        while not self._points and len(lines) >= 2 * _MOST_POINTS * self._stride:
            self._stride *= 2
        for line in lines:
            self._seen += 1
            if (self._seen - 1) % self._stride:
                continue
            row = records.parse_row(line)
            if row is not None and row.get(self._metric) is not None:
                self._points.append((row["step"], row[self._metric]))
            if len(self._points) >= 2 * _MOST_POINTS:
                self._points = self._points[::2]
                self._stride *= 2
        points = np.array(sorted(self._points), np.float64).reshape(-1, 2)
        return points[:, 0], points[:, 1]


def band(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, list[float]]:
    """The mean, the lowest and the highest of several curves at common steps, linear in between.

    Each curve counts within its own steps. One curve keeps its own points.
    """
    curves = [(x, y) for x, y in curves if len(x)]
    if not curves:
        return {"steps": [], "mean": [], "low": [], "high": []}
    if len(curves) == 1:
        every = -(-len(curves[0][0]) // (2 * _BAND_POINTS))
        x, y = (part[::every].tolist() for part in curves[0])
        return {"steps": x, "mean": y, "low": y, "high": y}
    steps = np.linspace(min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves), _BAND_POINTS)
    rows = np.stack([np.interp(steps, x, y, np.nan, np.nan) for x, y in curves])
    covered = ~np.all(np.isnan(rows), axis=0)
    rows = rows[:, covered]
    return {
        "steps": steps[covered].tolist(),
        "mean": np.nanmean(rows, 0).tolist(),
        "low": np.nanmin(rows, 0).tolist(),
        "high": np.nanmax(rows, 0).tolist(),
    }
