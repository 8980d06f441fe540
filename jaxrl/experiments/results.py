"""The results of cells, in files beside their runs, and their learning curves."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxrl.config import ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.config.local_files import replace_text
from jaxrl.experiments.cells import ExperimentCell
from jaxrl.reporting.pages.figures import Curve
from jaxrl.reporting.writers import TensorBoardWriter
from jaxrl.runs import records

RESULTS = "eval_results.json"
SUCCESS = "eval/all/success_rate"  # of the suite of test levels, in the rows of a run
Points = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]  # steps, values
# The metrics of a run, by their names in a comparison.
METRICS = {"success_rate": SUCCESS, "return": "eval/return", "efficiency": "eval/all/efficiency"}


@dataclass(frozen=True)
class Measured:
    """The numbers of a cell that has ended, as its decision matrix needs them, and where they come from.

    Attributes:
      test, train: of a suite, by category and of `all`, with actions as in `actions`.
      actions: greedy or sampled: what was better in the evaluations during training.
      steps_to_threshold: the first evaluation on test levels with so much success; None: there was none.
      p50_ms, p50_spread_ms: of acting on one observation; how far medians of the measurement lie apart.
      seconds: of training.
      clone: why a clone was not started from; "" if there was none to start from, or it was.
    """

    test: Mapping[str, Any]
    train: Mapping[str, Any]
    actions: str
    steps_to_threshold: int | None
    p50_ms: float
    p50_spread_ms: float
    parameters: int
    seconds: float | None
    clone: str = ""

    @property
    def columns(self) -> dict[str, float]:
        """By column of the decision matrix."""
        test, train = (float(x["all"]["success_rate"]) for x in (self.test, self.train))
        steps = math.inf if self.steps_to_threshold is None else float(self.steps_to_threshold)
        return {
            "success": test,
            "steps": steps,
            "gap": train - test,
            "latency": self.p50_ms,
            "parameters": float(self.parameters),
        }

    def spreads(self, eval_freq: int) -> dict[str, float]:
        """By column, the standard error of its measurement; the steps are as fine as their evaluations."""
        test, train = (_success_error(x["all"]) for x in (self.test, self.train))
        return {
            "success": test,
            "steps": float(eval_freq),
            "gap": math.hypot(test, train),
            "latency": self.p50_spread_ms,
            "parameters": 0.0,
        }


def _success_error(found: Mapping[str, Any]) -> float:
    """The standard error of a rate of successes (Agresti and Coull 1998), above 0 also if it is 0 or 1."""
    count = float(found["episodes"]) + 4
    rate = (found["success_rate"] * found["episodes"] + 2) / count
    return math.sqrt(rate * (1 - rate) / count)


def steps_to(folder: Path, threshold: float) -> tuple[int | None, float | None]:
    """(the first step of a run with so much success on test levels, its seconds of training)."""
    run = records.read(str(folder))
    steps, success = run.curve(SUCCESS)
    reached = steps[success >= threshold]
    return (int(reached[0]) if len(reached) else None), run.seconds


def of_suite(folder: Path, suite: str) -> tuple[str, dict[str, Any]]:
    """(how actions were chosen, the newest evaluation of a suite: of `all`, and by category).

    Actions are chosen as evaluations during training judged the policy, as in the evaluations that give the
    steps to the threshold. Rows of episodes are left out.

    Raises:
      ConfigError: there is none.
    """
    files = sorted(folder.glob(f"evaluations/*suite-{suite}-step-*.json"), key=lambda f: f.stat().st_mtime)
    if not files:
        raise ConfigError(f"{folder} has no evaluation of the suite {suite}")
    report = read_object(files[-1])
    mode = report["modes"][report["mode"]]
    categories = {
        name: {key: x for key, x in found.items() if key != "levels"}
        for name, found in mode["categories"].items()
    }
    return report["mode"], {"all": mode["all"], **categories}


def write_results(cell: ExperimentCell, found: Measured) -> None:
    """Writes eval_results.json: from then on the cell counts as finished."""
    content = {"architecture": cell.architecture, "mode": cell.mode, "seed": cell.seed, **vars(found)}
    replace_text(cell.folder / RESULTS, json.dumps(content, indent=2) + "\n")


def read_results(cell: ExperimentCell) -> Measured | None:
    """The results of a finished cell; None for one that has not finished."""
    try:
        found = read_object(cell.folder / RESULTS)
        # Cells of an experiment of an earlier version have no such spread.
        found.setdefault("p50_spread_ms", 0.0)
        return Measured(**{name: found[name] for name in Measured.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def results_by_group(results: Mapping[ExperimentCell, Measured | None]) -> dict[str, list[Measured]]:
    """The seeds that have finished, by group; seeds whose clone failed are a group of their own."""
    found: dict[str, list[Measured]] = {}
    for cell, measured in results.items():
        if measured is not None:
            group = f"{cell.group}, from scratch" if measured.clone else cell.group
            found.setdefault(group, []).append(measured)
    return found


def group_curve(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Curve:
    """The mean over seeds at the steps that all of them have, and the values of the lowest and the highest.

    Args:
      curves: (steps, values) of each seed.
    """
    shared = sorted(set.intersection(*(set(steps.tolist()) for steps, _ in curves)))
    values = [dict(zip(steps.tolist(), found.tolist(), strict=True)) for steps, found in curves]
    table = np.array([[seed[step] for step in shared] for seed in values]).reshape(len(curves), -1)
    return Curve(shared, *(f(table, axis=0).tolist() for f in (np.mean, np.min, np.max)))


def curves_by_group(cells: Sequence[ExperimentCell]) -> dict[str, dict[str, Curve]]:
    """By metric, then by group; of the cells that have rows of metrics."""
    runs = [(cell.group, records.read(str(cell.folder))) for cell in cells if _has_rows(cell)]
    found: dict[str, dict[str, Curve]] = {}
    for name, key in METRICS.items():
        for group in dict.fromkeys(group for group, _ in runs):
            curves = [run.curve(key) for other, run in runs if other == group]
            if all(len(steps) for steps, _ in curves):
                found.setdefault(name, {})[group] = group_curve(curves)
    return found


def write_tensorboard(
    folder: Path, cells: Sequence[ExperimentCell], finished: Sequence[ExperimentCell]
) -> None:
    """Writes comparison/METRIC against steps for TensorBoard below `folder`.

    A line for each finished cell; of an architecture with several seeds, once all of them have finished, also
    their mean.
    """
    for cell in finished:
        place = folder / cell.name.replace("/", "-").replace(":", "_")
        if not place.exists() and _has_rows(cell):
            run = records.read(str(cell.folder))
            _write(place, {name: run.curve(key) for name, key in METRICS.items()})
    for group in dict.fromkeys(cell.group for cell in cells):
        members = [cell for cell in cells if cell.group == group]
        place = folder / group.replace("/", "-").replace(":", "_")
        if len(members) > 1 and set(members) <= set(finished) and not place.exists():
            means = curves_by_group(members)
            _write(place, {name: (of[group].x, of[group].value) for name, of in means.items()})


def _write(place: Path, curves: Mapping[str, Points]) -> None:
    """Writes the files of TensorBoard for one line, completely or not at all."""
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    writer = TensorBoardWriter(partial)
    rows: dict[int, dict[str, float]] = {}
    for name, (steps, values) in curves.items():
        for step, value in zip(steps, values, strict=True):
            rows.setdefault(int(step), {})[f"comparison/{name}"] = float(value)
    for at, row in sorted(rows.items()):
        writer.write(at, row)
    writer.close()
    os.replace(partial, place)


def _has_rows(cell: ExperimentCell) -> bool:
    return (cell.folder / "metrics.jsonl").exists()
