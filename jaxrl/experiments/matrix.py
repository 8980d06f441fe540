"""The decision matrix: cells scored by weighted columns, and how much the winner depends on the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Weights = Mapping[str, float]
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
      name: such as `gat/no_pretrain`.
      values: by column; infinite steps where the threshold was never reached, by any seed.
      scaled: by column, from 0 (the worst of all rows) to 1 (the best).
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


def decide(results: Mapping[str, Sequence[Mapping[str, float]]], weights: Weights, move: float) -> Matrix:
    """The matrix of some cells.

    Args:
      results: the values of each seed by column, by the name of a row.
      weights: by column; they need not sum to 1.
      move: by how much each weight is raised and lowered, of a sum of 1.
    """
    total = sum(weights.values())
    shares = {name: weights[name] / total for name in COLUMNS}
    means = {name: _mean(seeds) for name, seeds in results.items()}
    rows = _rows(means, shares)
    moved = {}
    for column in COLUMNS:
        for change in (-move, move):
            found = _rows(means, moved_weights(shares, column, change))
            moved[f"{column} {change:+.2f}"] = _first(found)
    return Matrix(tuple(rows), shares, _first(rows), moved, _bootstrap(results, shares))


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


def scale_values(values: Sequence[float], more_is_better: bool) -> list[float]:
    """Values from 0 (the worst) to 1 (the best); infinite ones are as the worst, equal ones all 1."""
    finite = [x for x in values if math.isfinite(x)]
    if not finite:
        return [1.0] * len(values)
    worst = min(finite) if more_is_better else max(finite)
    best = max(finite) if more_is_better else min(finite)
    if len(finite) < len(values) and worst == best:
        return [1.0 if math.isfinite(x) else 0.0 for x in values]
    if worst == best:
        return [1.0] * len(values)
    return [(x - worst) / (best - worst) if math.isfinite(x) else 0.0 for x in values]


def _mean(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(seed[name] for seed in seeds) / len(seeds) for name in COLUMNS}


def _rows(means: Mapping[str, Mapping[str, float]], weights: Weights) -> list[MatrixRow]:
    names = list(means)
    columns = {
        column: scale_values([means[name][column] for name in names], more)
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


def _bootstrap(results: Mapping[str, Sequence[Mapping[str, float]]], weights: Weights) -> dict[str, float]:
    """The share of draws in which each row is first, seeds drawn with replacement (Efron 1979)."""
    if not results or min(len(seeds) for seeds in results.values()) < 2:
        return {}
    rng = np.random.default_rng(0)
    share = dict.fromkeys(results, 0.0)
    for _ in range(_RESAMPLES):
        drawn = {
            name: _mean([seeds[i] for i in rng.integers(0, len(seeds), len(seeds))])
            for name, seeds in results.items()
        }
        first = _winners(_rows(drawn, weights))
        for name in first:
            share[name] += 1 / len(first) / _RESAMPLES
    return share
