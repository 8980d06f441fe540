"""A tournament: every pair of contestants from both seats, and what follows from the games."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import installation
from jaxrl.envs.trees import select_rows, strong_types
from jaxrl.evaluation.tournament import ratings
from jaxrl.evaluation.tournament.contestants import Contestant
from jaxrl.evaluation.tournament.ratings import MatchGame
from jaxrl.types import Array, PyTree

# Longer games are draws.
MOST_TURNS = 5_000
_START = 0x53544152
_CHOICE = 0x43484F49
_MOVE = 0x4D4F5645


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

    @property
    def pairs(self) -> np.ndarray:
        """int[P, P, 3], from both seats together."""
        return self.by_seat.sum(axis=2)

    def record(self) -> dict[str, Any]:
        """Plain JSON values."""
        names = [standing.name for standing in self.standings]
        kinds = ("wins", "draws", "losses")
        return {
            "game": self.game,
            "games_per_pair": self.games,
            "seed": self.seed,
            "standings": [
                {
                    **{name: getattr(each, name) for name in ("name", *kinds, "score", "elo")},
                    "elo_interval": [each.elo - each.elo_half_width, each.elo + each.elo_half_width],
                    "elo_in_turn": each.elo_in_turn,
                    **(
                        {}
                        if each.skill is None
                        else {"openskill": {"mu": each.skill[0], "sigma": each.skill[1]}}
                    ),
                }
                for each in self.standings
            ],
            "pairs": [
                {
                    "one": names[i],
                    "other": names[j],
                    **{
                        seat: dict(zip(kinds, map(int, self.by_seat[i, j, s]), strict=True))
                        for s, seat in enumerate(("first", "second"))
                    },
                }
                for i in range(len(names))
                for j in range(i + 1, len(names))
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
      contestants: at least two, of one game.
      games: of each pair; even.
      seed: decides the games; all pairs have the same keys.
      openskill: rate by OpenSkill too.
      tell: is given a line after each pair.

    Raises:
      ConfigError: OpenSkill is requested and not installed.
    """
    if openskill:
        installation.require("`--openskill`", "openskill", "openskill")
    count = len(contestants)
    by_seat = np.zeros((count, count, 2, 3), int)
    played: list[MatchGame] = []
    for i in range(count):
        for j in range(i + 1, count):
            results = [_results(x) for x in play_both(contestants[i], contestants[j], seed, games)]
            by_seat[i, j] = [x.sum(axis=0) for x in results]
            # Seen from the other side a win is a loss, and the first move the second.
            by_seat[j, i] = by_seat[i, j, ::-1, ::-1]
            played += [MatchGame(i, j, float(score)) for x in results for score in x @ (1.0, 0.5, 0.0)]
            wins, draws, losses = by_seat[i, j].sum(axis=0)
            tell(f"{contestants[i].name} - {contestants[j].name}: {wins} won, {draws} drawn, {losses} lost")
    order = np.random.default_rng(seed).permutation(len(played))
    in_order = [played[x] for x in order]
    pairs = by_seat.sum(axis=2)
    elo, half_width = ratings.maximum_likelihood(pairs @ np.array([1.0, 0.5, 0.0]), pairs.sum(axis=2))
    in_turn = ratings.in_turn(in_order, count)
    skills = ratings.open_skill(in_order, count) if openskill else [None] * count
    best = np.argsort(-elo, kind="stable")
    standings = [
        Standing(
            name=contestants[i].name,
            wins=int(pairs[i, :, 0].sum()),
            draws=int(pairs[i, :, 1].sum()),
            losses=int(pairs[i, :, 2].sum()),
            elo=float(elo[i]),
            elo_half_width=float(half_width[i]),
            elo_in_turn=float(in_turn[i]),
            skill=skills[i],
        )
        for i in best
    ]
    return Results(contestants[0].game.spec.name, games, seed, standings, by_seat[np.ix_(best, best)])


def _results(result: np.ndarray) -> np.ndarray:
    """int[E, 3], whether a game with this result was won, drawn or lost."""
    return np.stack([result > 0, result == 0, result < 0], axis=-1).astype(int)


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
    program = _program(first, second)
    return np.asarray(program((first.acting, second.acting), keys_E))


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
        keys = jax.vmap(lambda key: jax.random.fold_in(jax.random.fold_in(key, _CHOICE + seat), play.turn))(
            keys_E
        )
        action, carry = sides[seat].move(acting, play.states, play.carries[seat], play.fresh[seat], keys)
        chance = jax.vmap(lambda key: jax.random.fold_in(key, _MOVE))(keys)
        states = strong_types(jax.vmap(game.play)(chance, play.states, action))
        gained = jax.vmap(game.leads)(states)[:, 0]
        carries: Any = (*play.carries,)
        fresh: Any = (*play.fresh,)
        return _Play(
            turn=play.turn,
            states=select_rows(moves, states, play.states),
            carries=tuple(select_rows(moves, carry, x) if i == seat else x for i, x in enumerate(carries)),
            fresh=tuple(x & ~moves if i == seat else x for i, x in enumerate(fresh)),
            lead=play.lead + jnp.where(moves, gained, 0.0),
        )

    def both(play: _Play, acting: tuple[PyTree, PyTree], keys_E: Array) -> _Play:
        for seat in range(2):
            play = half(play, seat, acting[seat], keys_E)
        return play.replace(turn=play.turn + 1)  # type: ignore[attr-defined]

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

        end: _Play = jax.lax.while_loop(goes_on, lambda play: both(play, acting, keys_E), start)
        return jnp.where(jax.vmap(game.is_over)(end.states), jnp.sign(end.lead), 0.0)

    return program
