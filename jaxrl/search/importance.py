"""The share of the score that each dimension of a space explains alone, from the trials so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrl.search.dimension import Dimension
from jaxrl.search.space import Space
from jaxrl.search.trials import DONE, PRUNED, Objective, StudyTrial

FEWEST = 8  # trials
_MOST_BINS = 5
_SHUFFLES = 200
_CHANCE = 0.05  # that a space without any effect shows one


def importance(space: Space, trials: Sequence[StudyTrial], objective: Objective) -> dict[str, float]:
    """The share of the variance of the score's rank that each dimension explains alone, by name.

    The trials are grouped by a dimension's value, ranges in quantiles, and the variance between groups is
    compared with all of it (epsilon squared, Kelley 1935). Shares that chance explains count as 0: where
    scores are shuffled, any dimension exceeds the limit in one of twenty cases. With ranks, a single very
    low score does not dominate the variance. Joint effects of several dimensions are not measured.

    Args:
      trials: the ones with a score count, also if they were stopped early.
      objective: ranks the scores.

    Returns:
      Shares in [0, 1], the largest first; empty with fewer than 8 trials.
    """
    scored = [t for t in trials if t.state in (DONE, PRUNED) and t.score is not None]
    if len(scored) < FEWEST:
        return {}
    ranks = _ranks(np.array([objective.gain(t.score or 0.0) for t in scored]))
    groups = {d.name: _groups(d, scored) for d in space.dimensions}
    rng = np.random.default_rng(0)
    shuffled = (rng.permutation(ranks) for _ in range(_SHUFFLES))
    chance = np.quantile([max(_share(g, r) for g in groups.values()) for r in shuffled], 1 - _CHANCE)
    found = {name: _share(each, ranks) for name, each in groups.items()}
    shares = {name: share if share > chance else 0.0 for name, share in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Ranks from 0; equal scores share the mean of their ranks."""
    below = (scores[:, None] > scores[None]).sum(1)
    return below + ((scores[:, None] == scores[None]).sum(1) - 1) / 2


def _groups(dimension: Dimension, trials: Sequence[StudyTrial]) -> np.ndarray:
    """The group of each trial."""
    values = np.array([dimension.coordinate(t.values[dimension.name]) for t in trials])
    distinct = np.unique(values)
    bins = max(2, min(_MOST_BINS, len(values) // 4))
    if len(distinct) <= bins or dimension.form == "choice":
        return np.searchsorted(distinct, values)
    return np.searchsorted(np.quantile(values, np.arange(1, bins) / bins), values, side="right")


def _share(groups: np.ndarray, ranks: np.ndarray) -> float:
    """Epsilon squared: `1 - (within / (n - k)) / (all / (n - 1))` for n trials in k groups, at least 0."""
    labels = np.unique(groups)
    n = len(ranks)
    k = len(labels)
    total = ((ranks - ranks.mean()) ** 2).sum()
    if n <= k or not total:
        return 0.0
    within = sum(((ranks[groups == g] - ranks[groups == g].mean()) ** 2).sum() for g in labels)
    return float(max(0.0, 1 - (within / (n - k)) / (total / (n - 1))))
