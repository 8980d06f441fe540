"""A tournament: every pair of contestants from both seats, and ratings of players from the games."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import installation
from jaxrl.envs.trees import select_rows, strong_types
from jaxrl.evaluation.tournament.contestants import Contestant
from jaxrl.types import Array, PyTree

MOST_TURNS = 5_000  # longer games are draws
_START = 0x53544152
_CHOICE = 0x43484F49
_MOVE = 0x4D4F5645
_ELO = 400.0 / math.log(10.0)  # points of a natural unit
_Z = NormalDist().inv_cdf(0.975)
_SCORES = np.array([1.0, 0.5, 0.0])  # of a win, a draw, a loss
_KINDS = ("wins", "draws", "losses")

MatchGame = tuple[int, int, float]  # the numbers of two players, and the score of the first: 1, 0.5 or 0


@dataclass(frozen=True)
class Standing:
    """A contestant after all games.

    Attributes:
      wins, draws, losses: games, from both seats.
      elo: the most likely rating; the mean of all contestants is 0.
      elo_half_width: of its 95% interval.
      elo_in_turn: the rating that changes with each game, K = 32, in a fixed random order of the games.
      skill: (mean, standard deviation) by OpenSkill; None if not requested.
    """

    name: str
    wins: int
    draws: int
    losses: int
    elo: float
    elo_half_width: float
    elo_in_turn: float
    skill: tuple[float, float] | None

    @property
    def games(self) -> int:
        """All of its games."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        """The share of wins; a draw is half a win."""
        return (self.wins + self.draws / 2) / max(self.games, 1)


@dataclass(frozen=True)
class Results:
    """The outcome of all games.

    Attributes:
      games: of each pair, half from each seat.
      standings: the best first.
      by_seat: int[P, P, 2, 3], wins, draws and losses of the row against the column, with the first move and
        without; players in the order of the standings.
    """

    game: str
    games: int
    seed: int
    standings: Sequence[Standing]
    by_seat: np.ndarray

    def record(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = [standing.name for standing in self.standings]
        return {
            "game": self.game,
            "games_per_pair": self.games,
            "seed": self.seed,
            "standings": [
                {
                    **{name: getattr(each, name) for name in ("name", *_KINDS, "score", "elo")},
                    "elo_interval": [each.elo - each.elo_half_width, each.elo + each.elo_half_width],
                    "elo_in_turn": each.elo_in_turn,
                    **(
                        {"openskill": dict(zip(("mu", "sigma"), each.skill, strict=True))}
                        if each.skill
                        else {}
                    ),
                }
                for each in self.standings
            ],
            "pairs": [
                {
                    "one": names[i],
                    "other": names[j],
                    "first": _counts(self.by_seat[i, j, 0]),
                    "second": _counts(self.by_seat[i, j, 1]),
                }
                for i, j in itertools.combinations(range(len(names)), 2)
            ],
        }


def run(
    contestants: Sequence[Contestant],
    games: int,
    seed: int,
    openskill: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Results:
    """Plays every pair.

    Args:
      games: of each pair; even.
      seed: decides the games; all pairs have the same keys.
      openskill: rate by OpenSkill too; ConfigError if it is not installed.
      tell: is given a line after each pair.
    """
    if openskill:
        installation.require("`--openskill`", "openskill", "openskill")
    count = len(contestants)
    by_seat = np.zeros((count, count, 2, 3), int)
    played: list[MatchGame] = []
    for (i, one), (j, other) in itertools.combinations(enumerate(contestants), 2):
        results = np.stack(play_both(one, other, seed, games))
        outcomes = np.stack([results > 0, results == 0, results < 0], axis=-1).astype(int)
        by_seat[i, j] = outcomes.sum(axis=1)
        # Seen from the other side a win is a loss, and the first move the second.
        by_seat[j, i] = by_seat[i, j, ::-1, ::-1]
        played += [(i, j, float(score)) for score in (outcomes @ _SCORES).ravel()]
        wins, draws, losses = by_seat[i, j].sum(axis=0)
        tell(f"{one.name} - {other.name}: {wins} won, {draws} drawn, {losses} lost")
    order = np.random.default_rng(seed).permutation(len(played))
    in_order = [played[x] for x in order]
    pairs = by_seat.sum(axis=2)
    elo, half_width = maximum_likelihood(pairs @ _SCORES, pairs.sum(axis=2))
    in_turn = elo_in_turn(in_order, count)
    skills = open_skill(in_order, count) if openskill else [None] * count
    best = np.argsort(-elo, kind="stable")
    standings = [
        Standing(
            name=contestants[i].name,
            **_counts(pairs[i].sum(axis=0)),
            elo=float(elo[i]),
            elo_half_width=float(half_width[i]),
            elo_in_turn=float(in_turn[i]),
            skill=skills[i],
        )
        for i in best
    ]
    return Results(contestants[0].game.spec.name, games, seed, standings, by_seat[np.ix_(best, best)])


def _counts(games: np.ndarray) -> dict[str, int]:
    return dict(zip(_KINDS, map(int, games), strict=True))


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
    return _ELO * rating, _Z * _ELO * deviation


def elo_in_turn(games: Sequence[MatchGame], count: int, k: float = 32.0) -> np.ndarray:
    """Elo ratings of `count` players that change by K (score - expected score) with each game; from 0."""
    rating = np.zeros(count)
    for one, other, score in games:
        change = k * (score - 1 / (1 + 10 ** ((rating[other] - rating[one]) / 400)))
        rating[one] += change
        rating[other] -= change
    return rating


def open_skill(games: Sequence[MatchGame], count: int) -> list[tuple[float, float]]:
    """(mean, standard deviation) of the skill of each player by OpenSkill's Plackett-Luce model.

    Weng and Lin 2011, "A Bayesian approximation method for online ranking".
    """
    from openskill.models import PlackettLuce

    model = PlackettLuce()
    rated = [model.rating() for _ in range(count)]
    for one, other, score in games:
        # A smaller rank is better, equal ones are a draw.
        ranks = [1 - score, score]
        [[rated[one]], [rated[other]]] = model.rate([[rated[one]], [rated[other]]], ranks=ranks)
    return [(float(player.mu), float(player.sigma)) for player in rated]


@flax.struct.dataclass
class _Play:
    """E games: their states, what each seat remembers, whether it has not moved, and the lead of seat 0."""

    turn: Array
    states: PyTree
    carries: tuple[PyTree, PyTree]
    fresh: tuple[Array, Array]
    lead: Array


def play(first: Contestant, second: Contestant, keys_E: Array) -> np.ndarray:
    """float32[E], the result of a game for each key, in which `first` has the first move; on the host.

    1 if `first` got more than `second`, -1 if it got less, else 0: a draw.
    """
    return np.asarray(_program(first, second)((first.acting, second.acting), keys_E))


def play_both(one: Contestant, other: Contestant, seed: int, games: int) -> tuple[np.ndarray, np.ndarray]:
    """The results of `one` from each seat, float32[games / 2] each; games have fixed keys."""
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.key(seed), jnp.arange(games // 2))
    return play(one, other, keys), -play(other, one, keys)


@functools.lru_cache(maxsize=256)
def _program(first: Contestant, second: Contestant) -> Callable[[tuple[PyTree, PyTree], Array], Array]:
    game = first.game
    sides = (first, second)

    def half(play: _Play, seat: int, acting: PyTree, keys_E: Array) -> _Play:
        """After the moves of a seat in the games where it has the turn."""
        over = jax.vmap(game.is_over)(play.states)
        moves = (jax.vmap(game.seat)(play.states) == seat) & ~over
        key_of = lambda key: jax.random.fold_in(jax.random.fold_in(key, _CHOICE + seat), play.turn)  # noqa: E731
        keys = jax.vmap(key_of)(keys_E)
        action, carry = sides[seat].move(acting, play.states, play.carries[seat], play.fresh[seat], keys)
        chance = jax.vmap(lambda key: jax.random.fold_in(key, _MOVE))(keys)
        states = strong_types(jax.vmap(game.play)(chance, play.states, action))
        gained = jax.vmap(game.leads)(states)[:, 0]
        carries: Any = play.carries
        fresh: Any = play.fresh
        return _Play(
            turn=play.turn + seat,
            states=select_rows(moves, states, play.states),
            carries=tuple(select_rows(moves, carry, x) if i == seat else x for i, x in enumerate(carries)),
            fresh=tuple(x & ~moves if i == seat else x for i, x in enumerate(fresh)),
            lead=play.lead + jnp.where(moves, gained, 0.0),
        )

    @jax.jit
    def program(acting: tuple[PyTree, PyTree], keys_E: Array) -> Array:
        (count,) = keys_E.shape
        start_keys = jax.vmap(lambda key: jax.random.fold_in(key, _START))(keys_E)
        start = _Play(
            turn=jnp.zeros((), jnp.int32),
            states=strong_types(jax.vmap(game.start)(start_keys)),
            carries=(first.initial_carry(count), second.initial_carry(count)),
            fresh=(jnp.ones(count, bool), jnp.ones(count, bool)),
            lead=jnp.zeros(count, jnp.float32),
        )

        def goes_on(play: _Play) -> Array:
            return ~jax.vmap(game.is_over)(play.states).all() & (play.turn < MOST_TURNS)

        def turn(play: _Play) -> _Play:
            return half(half(play, 0, acting[0], keys_E), 1, acting[1], keys_E)

        end: _Play = jax.lax.while_loop(goes_on, turn, start)
        return jnp.where(jax.vmap(game.is_over)(end.states), jnp.sign(end.lead), 0.0)

    return program
