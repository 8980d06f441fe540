"""How much each dimension of a space decides on its own, from the trials there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrl.experiments.search.space import Dimension, Space
from jaxrl.experiments.search.trials import DONE, PRUNED, Objective, StudyTrial

FEWEST = 8  # trials, below which nothing is said
_MOST_BINS = 5


def importance(space: Space, trials: Sequence[StudyTrial], objective: Objective) -> dict[str, float]:
    """The share of the variance of the score's rank that each dimension explains alone, by name.

    The trials are grouped by a dimension's value, ranges in quantiles, and the variance between groups is
    compared with all of it (epsilon squared, Kelley 1935), which is 0 on average where a dimension decides
    nothing. Ranks keep a single disaster from being all the variance. Effects of several dimensions together
    are not seen.

    Args:
      space: its dimensions.
      trials: of which those with a score count, also where they were stopped early.
      objective: which score is better.

    Returns:
      Shares in [0, 1], the largest first; empty with fewer than 8 trials.
    """
    scored = [t for t in trials if t.state in (DONE, PRUNED) and t.score is not None]
    if len(scored) < FEWEST:
        return {}
    ranks = _ranks(np.array([objective.gain(t.score or 0.0) for t in scored]))
    shares = {d.name: _share(_groups(d, scored), ranks) for d in space.dimensions}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _ranks(scores: np.ndarray) -> np.ndarray:
    """From 0; equal scores share the mean of theirs."""
    below = (scores[:, None] > scores[None]).sum(1)
    ranks: np.ndarray = below + ((scores[:, None] == scores[None]).sum(1) - 1) / 2
    return ranks


def _groups(dimension: Dimension, trials: Sequence[StudyTrial]) -> np.ndarray:
    """Which group each trial belongs to."""
    values = np.array([dimension.coordinate(t.values[dimension.name]) for t in trials])
    distinct = np.unique(values)
    bins = max(2, min(_MOST_BINS, len(values) // 4))
    if len(distinct) <= bins or dimension.form == "choice":
        return np.searchsorted(distinct, values)
    return np.searchsorted(np.quantile(values, np.arange(1, bins) / bins), values, side="right")


def _share(groups: np.ndarray, ranks: np.ndarray) -> float:
    """Epsilon squared: `1 - (within / (n - k)) / (all / (n - 1))` for n trials in k groups, at least 0."""
    labels = np.unique(groups)
    n, k = len(ranks), len(labels)
    total = ((ranks - ranks.mean()) ** 2).sum()
    if n <= k or not total:
        return 0.0
    within = sum(((ranks[groups == g] - ranks[groups == g].mean()) ** 2).sum() for g in labels)
    return float(max(0.0, 1 - (within / (n - k)) / (total / (n - 1))))
