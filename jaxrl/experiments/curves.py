"""Learning curves of an experiment: of each cell, and of architectures as means over their seeds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxrl.experiments.cells import ExperimentCell
from jaxrl.experiments.results import SUCCESS
from jaxrl.reporting.pages.figures import Curve
from jaxrl.reporting.writers import TensorBoardWriter
from jaxrl.runs import records

Points = tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]  # steps, values
# The metrics of a run, by their names in a comparison.
METRICS = {"success_rate": SUCCESS, "return": "eval/return", "efficiency": "eval/all/efficiency"}


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
    for step, values in _rows(curves):
        writer.write(step, values)
    writer.close()
    os.replace(partial, place)


def _rows(curves: Mapping[str, Points]) -> Iterator[tuple[int, dict[str, float]]]:
    rows: dict[int, dict[str, float]] = {}
    for name, (steps, values) in curves.items():
        for step, value in zip(steps, values, strict=True):
            rows.setdefault(int(step), {})[f"comparison/{name}"] = float(value)
    return iter(sorted(rows.items()))


def _has_rows(cell: ExperimentCell) -> bool:
    return (cell.folder / "metrics.jsonl").exists()
