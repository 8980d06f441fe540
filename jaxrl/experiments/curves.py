"""Learning curves of an experiment: of each cell, and of architectures as means over their seeds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxrl.experiments.cells import ExperimentCell
from jaxrl.experiments.results import SUCCESS
from jaxrl.reporting.writers import TensorBoardWriter
from jaxrl.runs import records

# The metrics of a run, by their names in a comparison.
METRICS = {"success_rate": SUCCESS, "return": "eval/return", "efficiency": "eval/all/efficiency"}


@dataclass(frozen=True)
class GroupCurve:
    """A metric of the cells that differ in the seed alone, at the steps that all of them have.

    Attributes:
      steps, mean, low, high: float64[N]; `low` and `high` are those of the lowest and the highest seed.
    """

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> GroupCurve:
        """From (steps, values) of each seed."""
        shared = sorted(set.intersection(*(set(steps.tolist()) for steps, _ in curves)))
        values = [dict(zip(steps.tolist(), found.tolist(), strict=True)) for steps, found in curves]
        table = np.array([[seed[step] for step in shared] for seed in values]).reshape(len(curves), -1)
        return cls(np.array(shared), table.mean(axis=0), table.min(axis=0), table.max(axis=0))


def curves_by_group(cells: Sequence[ExperimentCell]) -> dict[str, dict[str, GroupCurve]]:
    """By metric, then by group; of those cells that have rows of metrics."""
    runs = [(cell.group, records.read(str(cell.folder))) for cell in cells if _has_rows(cell)]
    found: dict[str, dict[str, GroupCurve]] = {}
    for name, key in METRICS.items():
        for group in dict.fromkeys(group for group, _ in runs):
            curves = [run.curve(key) for other, run in runs if other == group]
            if all(len(steps) for steps, _ in curves):
                found.setdefault(name, {})[group] = GroupCurve.of(curves)
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
            _write(place, {name: (of[group].steps, of[group].mean) for name, of in means.items()})


def _write(place: Path, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Writes the files of TensorBoard for one line, completely or not at all."""
    partial = place.with_name(f".{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    writer = TensorBoardWriter(partial)
    for step, values in _rows(curves):
        writer.write(step, values)
    writer.close()
    os.replace(partial, place)


def _rows(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[int, dict[str, float]]]:
    rows: dict[int, dict[str, float]] = {}
    for name, (steps, values) in curves.items():
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            rows.setdefault(int(step), {})[f"comparison/{name}"] = value
    return iter(sorted(rows.items()))


def _has_rows(cell: ExperimentCell) -> bool:
    return (cell.folder / "metrics.jsonl").exists()
