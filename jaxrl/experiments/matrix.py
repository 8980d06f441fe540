"""The decision matrix: cells scored by weighted columns, and how much the winner depends on the weights."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Weights = Mapping[str, float]
ByRow = Mapping[str, Mapping[str, float]]  # by row, then by column
Seeds = Mapping[str, Sequence[Mapping[str, float]]]
# Of each column: its heading, and whether more is better.
COLUMNS: dict[str, tuple[str, bool]] = {
    "success": ("success on test levels", True),
    "steps": ("steps to the threshold", False),
    "gap": ("success on training levels - on test levels", False),
    "latency": ("p50 latency, ms", False),
    "parameters": ("parameters", False),
}
_RESAMPLES = 2000


@dataclass(frozen=True)
class MatrixRow:
    """One architecture, with or without pretraining; means over its seeds.

    Attributes:
      values: by column; infinite steps where the threshold was never reached, by any seed.
      scale_values: by column, from 0 (the worst of all rows) to 1 (the best, or within the error of it).
      score: the weighted mean of these.
    """

    name: str
    values: Mapping[str, float]
    scale_values: Mapping[str, float]
    score: float


@dataclass(frozen=True)
class Matrix:
    """Rows from the best score to the worst, and how sure the first is.

    Attributes:
      rows: sorted by score, then by name.
      weights: by column, of sum 1.
      winner: the name of the first; "" if several share the best score.
      moved: the winner, by column and by how far its weight was moved, such as `success +0.10`; the
        others are scaled so that the sum stays 1.
      bootstrap: by name, in which share of resamples over seeds a row is first, ties divided; {} if a row
        has one seed.
    """

    rows: tuple[MatrixRow, ...]
    weights: Weights
    winner: str
    moved: Mapping[str, str]
    bootstrap: Mapping[str, float]

    @property
    def is_stable(self) -> bool:
        """True if no move of a weight changes the winner."""
        return all(name == self.winner for name in self.moved.values())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; infinite ones are null."""
        found = asdict(self) | {"is_stable": self.is_stable}
        for row in found["rows"]:
            row["values"] = {k: v if math.isfinite(v) else None for k, v in row["values"].items()}
        return found


def decide(results: Seeds, spreads: Seeds, weights: Weights, move: float) -> Matrix:
    """The matrix of some cells.

    Args:
      results: the values of each seed by column, by the name of a row.
      spreads: the standard errors of their measurement, likewise.
      weights: by column; they need not sum to 1.
      move: by how much each weight is raised and lowered, of a sum of 1.
    """
    total = sum(weights.values())
    shares = {name: weights[name] / total for name in COLUMNS}
    means = {name: _mean(seeds) for name, seeds in results.items()}
    measured = {name: _of_measurement(seeds) for name, seeds in spreads.items()}
    errors = {
        name: {column: max(error, _of_seeds(results[name], column)) for column, error in found.items()}
        for name, found in measured.items()
    }
    rows = _rows(means, errors, shares)
    moved = {}
    for column in COLUMNS:
        for change in (-move, move):
            found = _rows(means, errors, moved_weights(shares, column, change))
            moved[f"{column} {change:+.2f}"] = _first(found)
    return Matrix(tuple(rows), shares, _first(rows), moved, _bootstrap(results, measured, shares))


def moved_weights(weights: Weights, column: str, change: float) -> dict[str, float]:
    """Weights of sum 1 with one moved, at most to 0 or 1, and the others scaled."""
    new = min(1.0, max(0.0, weights[column] + change))
    others = 1 - weights[column]
    scale = (1 - new) / others if others > 0 else 0.0
    rest = len(weights) - 1
    return {
        name: new if name == column else (x * scale if others > 0 else (1 - new) / rest)
        for name, x in weights.items()
    }


def scale_values(values: Sequence[float], errors: Sequence[float], more_is_better: bool) -> list[float]:
    """Values from 0 (the worst) to 1 (the best); infinite ones are as the worst.

    Values that differ from the best by at most the standard error of the difference count as the best.
    """
    finite = [(x, error) for x, error in zip(values, errors, strict=True) if math.isfinite(x)]
    if not finite:
        return [1.0] * len(values)
    best, error = (max if more_is_better else min)(finite)
    worst = (min if more_is_better else max)(finite)[0]

    def scaled(x: float, own: float) -> float:
        if not math.isfinite(x):
            return 0.0
        return 1.0 if abs(x - best) <= math.hypot(own, error) else (x - worst) / (best - worst)

    return [scaled(x, own) for x, own in zip(values, errors, strict=True)]


def _of_measurement(spreads: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The standard error of the mean of each column over seeds, from each seed's standard error."""
    return {name: math.hypot(*(spread[name] for spread in spreads)) / len(spreads) for name in COLUMNS}


def _of_seeds(seeds: Sequence[Mapping[str, float]], name: str) -> float:
    """The standard error of the mean of a column by how its seeds differ; 0 if that is not known."""
    values = [seed[name] for seed in seeds]
    known = len(values) > 1 and all(map(math.isfinite, values))
    return statistics.stdev(values) / math.sqrt(len(values)) if known else 0.0


def _mean(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(seed[name] for seed in seeds) / len(seeds) for name in COLUMNS}


def _rows(means: ByRow, errors: ByRow, weights: Weights) -> list[MatrixRow]:
    names = list(means)
    columns = {
        column: scale_values([means[n][column] for n in names], [errors[n][column] for n in names], more)
        for column, (_, more) in COLUMNS.items()
    }
    rows = []
    for i, name in enumerate(names):
        of_row = {column: found[i] for column, found in columns.items()}
        score = sum(weights[column] * x for column, x in of_row.items())
        rows.append(MatrixRow(name, dict(means[name]), of_row, score))
    return sorted(rows, key=lambda row: (-row.score, row.name))


def _winners(rows: Sequence[MatrixRow]) -> list[str]:
    """The rows of the best score; rounding tells no two apart."""
    return [row.name for row in rows if math.isclose(row.score, rows[0].score, abs_tol=1e-9)] if rows else []


def _first(rows: Sequence[MatrixRow]) -> str:
    found = _winners(rows)
    return found[0] if len(found) == 1 else ""


def _bootstrap(results: Seeds, errors: ByRow, weights: Weights) -> dict[str, float]:
    """The share of samples in which each row is first, seeds sampled with replacement (Efron 1979)."""
    if not results or min(len(seeds) for seeds in results.values()) < 2:
        return {}
    rng = np.random.default_rng(0)
    share = dict.fromkeys(results, 0.0)
    for _ in range(_RESAMPLES):
        drawn = {
            name: _mean([seeds[i] for i in rng.integers(0, len(seeds), len(seeds))])
            for name, seeds in results.items()
        }
        first = _winners(_rows(drawn, errors, weights))
        for name in first:
            share[name] += 1 / len(first) / _RESAMPLES
    return share
