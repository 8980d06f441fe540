"""Ratings of players from the games between them, on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

_SCALE = 400.0 / math.log(10.0)
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class MatchGame:
    """A game between players `one` and `other`, numbers; `score` of the one: 1, 0.5 or 0."""

    one: int
    other: int
    score: float


def maximum_likelihood(score: np.ndarray, games: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most likely Elo ratings, whose mean is 0, and half the widths of their 95% intervals.

    A player rated d higher is expected to score 1 / (1 + 10^(-d / 400)); a draw is half a win (Bradley and
    Terry 1952). Each pair that played counts one extra draw, without which a player who never lost would
    have no finite rating. Intervals are of the difference to the mean, from the inverse Fisher information.

    Args:
      score: float[P, P], sums of scores of the row against the column.
      games: float[P, P], symmetric.
    """
    played = games > 0
    wins = score + 0.5 * played
    total = games + 1.0 * played
    count = len(score)
    rating = np.zeros(count)  # in natural units
    # Games do not determine the mean: a projection leaves it out.
    centre = np.eye(count) - 1 / count
    for _ in range(100):
        expected = 1 / (1 + np.exp(-(rating[:, None] - rating[None])))
        gradient = (wins - total * expected).sum(axis=1)
        weight = total * expected * (1 - expected)
        information = np.diag(weight.sum(axis=1)) - weight
        step = np.linalg.pinv(information) @ gradient
        step *= min(1.0, 2.0 / max(np.abs(step).max(), 1e-12))
        rating = centre @ (rating + step)
        if np.abs(step).max() < 1e-10:
            break
    deviation = np.sqrt(np.clip(np.diag(centre @ np.linalg.pinv(information) @ centre), 0, None))
    return _SCALE * rating, _Z * _SCALE * deviation


def in_turn(games: Sequence[MatchGame], count: int, k: float = 32.0) -> np.ndarray:
    """Elo ratings of `count` players that change by K (score - expected score) with each game; from 0."""
    rating = np.zeros(count)
    for game in games:
        expected = 1 / (1 + 10 ** ((rating[game.other] - rating[game.one]) / 400))
        change = k * (game.score - expected)
        rating[game.one] += change
        rating[game.other] -= change
    return rating


def open_skill(games: Sequence[MatchGame], count: int) -> list[tuple[float, float]]:
    """(mean, standard deviation) of the skill of each player by OpenSkill's Plackett-Luce model.

    Weng and Lin 2011, "A Bayesian approximation method for online ranking".
    """
    from openskill.models import PlackettLuce

    model = PlackettLuce()
    rated = [model.rating() for _ in range(count)]
    for game in games:
        # A smaller rank is better, equal ones are a draw.
        ranks = [1 - game.score, game.score]
        [[one], [other]] = model.rate([[rated[game.one]], [rated[game.other]]], ranks=ranks)
        rated[game.one], rated[game.other] = one, other
    return [(float(player.mu), float(player.sigma)) for player in rated]
