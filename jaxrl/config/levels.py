"""The section of levels that are chosen by what can be learnt from them."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, above, between, bounds, field, one_of

POSITIVE_VALUE_LOSS = "positive_value_loss"
L1_VALUE_LOSS = "l1_value_loss"
MAX_MONTE_CARLO = "max_mc"
RANK = "rank"
PROPORTIONAL = "proportional"
_MOST_LEVELS = 1_000_000


@dataclasses.dataclass(frozen=True)
class LevelsConfig:
    """Level replay: levels chosen by their learning potential (docs/levels.md)."""

    capacity: int = field(
        4000,
        *bounds(1, _MOST_LEVELS),
        help="levels in the buffer; with a pool of levels, the whole pool instead",
        fixed=True,
    )
    replay: float = field(
        0.8,
        between(0.0, 1.0),
        help="share of the episodes in levels of the buffer, once it is filled; the others are new levels",
    )
    fill: float = field(
        0.5,
        between(0.0, 1.0),
        help="share of the buffer to fill before any replay; or as many episodes, if levels come again",
    )
    score: str = field(
        MAX_MONTE_CARLO,
        one_of(POSITIVE_VALUE_LOSS, L1_VALUE_LOSS, MAX_MONTE_CARLO),
        help="score of a level, from its latest episodes: the mean over steps of the positive "
        "part of the advantage or of its magnitude, or the best return so far minus the "
        "mean value",
    )
    prioritization: str = field(
        RANK,
        one_of(RANK, PROPORTIONAL),
        help="the probability of a level follows the rank of its score, or the score",
    )
    temperature: float = field(
        0.3,
        above(0.0),
        help="1: probabilities proportional to 1 / rank, or to the score; near 0 only the best is replayed",
    )
    staleness: float = field(
        0.3,
        between(0.0, 1.0),
        help="share of the replays by staleness, the time since a level was last played, instead of by score",
    )
    refresh_iterations: int = field(
        50,
        *bounds(1, LARGEST_INT32),
        help="for learnability: iterations between choices of levels by separate rollouts",
    )
    candidates: int = field(
        1000, *bounds(1, _MOST_LEVELS), help="for learnability: random levels played for each choice"
    )
    kept: int = field(
        250,
        *bounds(1, _MOST_LEVELS),
        help="for learnability: number of these played in training until the next choice",
        fixed=True,
    )
    episodes: int = field(
        5, *bounds(2, 1000), help="for learnability: episodes in each, for its success rate"
    )
