"""Search by score and seconds: Gaussian processes over both, and proposals near the Pareto front.

The idea is from CARBS (Fetterman et al. 2023, arXiv:2306.08055) and PufferLib's Protein: the cost of
a configuration is learnt like its score, so that cheap and expensive ones are improved side by side.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrl.config import installation
from jaxrl.search.dimension import Dimension
from jaxrl.search.study import Sampler, draw, generator
from jaxrl.search.trials import DONE, FAILED, Objective, StudyTrial, Task

_CANDIDATES = 256
_SHARE_ANYWHERE = 0.25  # of the candidates; the others lie near the front
_STEP = 0.15  # standard deviation of a move away from the front, of a range
_OTHER_CHOICE = 0.25  # probability that a move takes another choice
_WIDTH = 0.25  # how far from the wanted cost, as a share of the front's range of log seconds


def pareto_front(trials: Sequence[StudyTrial], objective: Objective) -> list[StudyTrial]:
    """The trials that no other beats in score without taking longer, the quickest first."""
    known = [t for t in trials if t.state == DONE and t.score is not None and t.seconds is not None]
    front: list[StudyTrial] = []
    for trial in sorted(known, key=lambda t: (t.seconds or 0.0, -objective.gain(t.score or 0.0))):
        if not front or objective.gain(trial.score or 0.0) > objective.gain(front[-1].score or 0.0):
            front.append(trial)
    return front


class ParetoSampler(Sampler):
    """Random points first, then points of the largest expected gain at a cost sampled along the front."""

    def __init__(self, task: Task) -> None:
        """Takes the task; ConfigError if scikit-learn is missing."""
        installation.require("`--method` (='pareto')", "search", "sklearn")
        self._task = task
        self._space = task.space
        self._objective = task.objective

    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        rng = generator(self._task.options.seed, number)
        front = pareto_front(trials, self._objective)
        first = 2 * len(self._space.dimensions) + 4
        if number < first or len({t.number for t in trials if t.state == DONE}) < 3:
            return draw(self._task, rng)
        candidates = [self._candidate(front, rng) for _ in range(_CANDIDATES)]
        gains = self._expected_gains(candidates, trials, front, rng)
        for index in np.argsort(-gains, kind="stable"):
            if not self._task.problem(candidates[index]):
                return candidates[index]
        return draw(self._task, rng)

    def _candidate(self, front: Sequence[StudyTrial], rng: np.random.Generator) -> dict[str, Any]:
        """A point anywhere, or a move away from a trial of the front."""
        if rng.random() < _SHARE_ANYWHERE:
            return self._space.at(rng.random(len(self._space.dimensions)))
        centre = front[int(rng.integers(len(front)))].values
        return {d.name: _move(d, centre[d.name], rng) for d in self._space.dimensions}

    def _expected_gains(
        self,
        candidates: Sequence[dict[str, Any]],
        trials: Sequence[StudyTrial],
        front: Sequence[StudyTrial],
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Expected improvement on the front at a cost sampled along it, less at other costs."""
        gain = self._objective.gain
        scored = {t.number: gain(t.score) for t in trials if t.state == DONE and t.score is not None}
        # Trials that diverge or need too much memory count like the worst of the others.
        scored |= {t.number: min(scored.values()) for t in trials if t.state == FAILED}
        by_number = {t.number: t for t in trials}
        points = self._encode([by_number[number].values for number in scored])
        timed = [t for t in trials if t.state == DONE and t.seconds]
        new = self._encode(candidates)
        mean, deviation = _predict(points, np.array(list(scored.values())), new)
        log_seconds = np.array([math.log(t.seconds or 1.0) for t in timed])
        cost, _ = _predict(self._encode([t.values for t in timed]), log_seconds, new)

        costs = np.log([max(t.seconds or 0.0, 1e-9) for t in front])
        width = max(_WIDTH * (costs[-1] - costs[0]), 0.05)
        wanted = rng.uniform(costs[0] - width, costs[-1] + width)
        # The best score for at most this cost; the worst of all if no trial was so quick.
        gains = [min(scored.values()), *(gain(t.score or 0.0) for t in front)]
        known = gains[int(np.searchsorted(costs, wanted, side="right"))]
        return improvement(mean, deviation, known) * np.exp(-(((cost - wanted) / width) ** 2))

    def _encode(self, points: Sequence[Any]) -> np.ndarray:
        """Points as coordinates in [0, 1]; a choice has one coordinate per value."""
        rows = []
        for values in points:
            row: list[float] = []
            for d in self._space.dimensions:
                value = values[d.name]
                row += [float(value == x) for x in d.choices] if d.choices else [d.coordinate(value)]
            rows.append(row)
        return np.array(rows, np.float64)


def improvement(mean: np.ndarray, deviation: np.ndarray, known: float) -> np.ndarray:
    """Expected improvement of normal variables on `known` (Jones et al. 1998, equation 15).

    `E[max(Y - known, 0)] = (mean - known) Phi(z) + deviation phi(z)`, `z = (mean - known) / deviation`.
    """
    from scipy.stats import norm

    deviation = np.maximum(deviation, 1e-12)
    z = (mean - known) / deviation
    return (mean - known) * norm.cdf(z) + deviation * norm.pdf(z)


def _move(dimension: Dimension, value: Any, rng: np.random.Generator) -> Any:
    if dimension.form == "choice":
        return dimension.at(rng.random()) if rng.random() < _OTHER_CHOICE else value
    unit = abs(dimension.coordinate(value) + rng.normal(0, _STEP)) % 2  # reflected at both bounds
    return dimension.at(2 - unit if unit > 1 else unit)


def _predict(points: np.ndarray, values: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, at new points, of a Gaussian process fitted to noisy values."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    from threadpoolctl import threadpool_limits

    lengths = np.full(points.shape[1], 0.5)
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(lengths, (0.05, 20.0), nu=2.5)
    process = GaussianProcessRegressor(kernel + WhiteKernel(0.05, (1e-5, 1.0)), normalize_y=True)
    # One thread: matrices are small, and the cores are the trials'.
    with threadpool_limits(1), warnings.catch_warnings():
        # A length at its bound: that field does not matter.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(points, values)
        mean, deviation = process.predict(new, return_std=True)
    return mean, deviation
