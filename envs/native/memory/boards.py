"""Battleship, MineSweeper and Concentration: boards whose squares are shown once, and cards face down."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_call, check_choice, check_positive, check_whole
from jaxrl.envs.native.memory.card_games import KINDS, check_decks, deal, full_deck
from jaxrl.envs.native.random_words import below, choose, random_words

_LARGEST_BOARD = 64
_RESET_RATIO = 16
# Of MineSweeper: squares a side, and mines.
_BOARDS = {"easy": (4, 2), "medium": (6, 6), "hard": (8, 10)}
_UNSEEN = -1
_NONE = -1


@flax.struct.dataclass
class BattleshipState:
    """bool[N, N], the ships; bool[N, N], the squares that were shot at; int32[], steps so far."""

    ships: jax.Array
    shots: jax.Array
    time: jax.Array


class Battleship(JaxEnv):
    """An action shoots at a square; the observation is 1 if that is a new hit.

    Observation Discrete(2), 0 at the start; action MultiDiscrete[N, N], row and column. With h squares of
    ships a hit has a reward of 1 / h, anything else, a second shot included, -1 / (N * N - h). The episode
    terminates when all ships are sunk, and is truncated after N * N steps. The best return is 1; shooting at
    every square once in any order that ends with a hit has 0.

    Args:
      board_size: N.
      ship_sizes: the length of each ship. They are laid one after the other, each uniformly over the places,
        down or across, that cover no other ship; half of the board at most.
    """

    def __init__(self, board_size: int = 10, ship_sizes: Sequence[int] = (2, 3, 3, 4)):
        label = "jaxrl:memory/Battleship"
        self._side = check_positive(f"{label}: board_size", board_size, _LARGEST_BOARD)
        if not isinstance(ship_sizes, tuple | list) or not ship_sizes:
            raise ValueError(f"{label}: ship_sizes (={ship_sizes!r}) must be a tuple of at least one size")
        self._sizes = [check_whole(f"{label}: a size of ship_sizes", s, 1, board_size) for s in ship_sizes]
        self._squares = sum(self._sizes)
        if 2 * self._squares > board_size**2:
            raise ValueError(
                f"{label}: ship_sizes (={ship_sizes!r}) must cover half of the board at most, "
                f"{board_size**2 // 2} squares"
            )
        self.spec = EnvSpec(
            name=changed_call(label, Battleship, locals()),
            observation_space=Discrete(2),
            action_space=MultiDiscrete((board_size, board_size)),
            max_episode_steps=board_size**2,
            reset_ratio=_RESET_RATIO,
        )

    def reset(self, key: jax.Array) -> tuple[BattleshipState, jax.Array]:
        words = random_words(key, len(self._sizes))
        ships = jnp.zeros((self._side, self._side), bool)
        for word, size in zip(words, self._sizes, strict=True):
            ships = _lay_ship(word, ships, size)
        zero = jnp.zeros((), jnp.int32)
        return BattleshipState(ships, jnp.zeros_like(ships), zero), zero

    def step(self, key: jax.Array, state: BattleshipState, action: jax.Array) -> tuple[Any, TimeStep]:
        lines = jnp.arange(self._side)
        here = (lines == action[0])[:, None] & (lines == action[1])
        hit = (here & state.ships & ~state.shots).any()
        shots = state.shots | here
        time = state.time + 1
        miss = -1 / (self._side**2 - self._squares)
        return BattleshipState(state.ships, shots, time), TimeStep(
            obs=hit.astype(jnp.int32),
            reward=jnp.where(hit, 1 / self._squares, miss).astype(jnp.float32),
            terminated=(shots | ~state.ships).all(),
            truncated=time >= self._side**2,
        )


def _lay_ship(word: jax.Array, ships: jax.Array, size: int) -> jax.Array:
    """bool[N, N]: the board with one ship more, even over all places where it fits; one random word."""
    side = ships.shape[0]
    starts = side - size + 1

    def fits(board: jax.Array) -> jax.Array:
        covered = jnp.stack([board[:, i : i + starts] for i in range(size)])
        return ~covered.any(axis=0)

    # Across, then down, which is across on the board on its side.
    place = choose(word, jnp.concatenate([fits(ships).ravel(), fits(ships.T).ravel()]))
    line = place % (side * starts) // starts
    start = place % starts
    lines = jnp.arange(side)
    ship = (lines == line)[:, None] & (lines >= start) & (lines < start + size)
    return ships | jnp.where(place < side * starts, ship, ship.T)


@flax.struct.dataclass
class MineSweeperState:
    """bool[N, N], the mines; bool[N, N], the squares that are open; int32[], steps so far."""

    mines: jax.Array
    opened: jax.Array
    time: jax.Array


class MineSweeper(JaxEnv):
    """An action opens a square; the observation is the number of mines on it and around it.

    Observation Discrete(min(mines, 9) + 1), 0 at the start; action MultiDiscrete[N, N], row and column. With
    n squares without a mine, a new square has a reward of 1 / n, one that is open already -0.5 / (n - 2). A
    mine has -0.5 - 1 / n and terminates, and so does the last square without one. An episode is truncated
    after n steps. The best return is 1.

    Args:
      difficulty: "easy" (4 by 4 squares, 2 mines), "medium" (6 by 6, 6) or "hard" (8 by 8, 10).
    """

    def __init__(self, difficulty: str = "easy"):
        label = "jaxrl:memory/MineSweeper"
        self._side, self._mines = _BOARDS[check_choice(f"{label}: difficulty", difficulty, tuple(_BOARDS))]
        self._free = self._side**2 - self._mines
        self.spec = EnvSpec(
            name=changed_call(label, MineSweeper, locals()),
            observation_space=Discrete(min(self._mines, 9) + 1),
            action_space=MultiDiscrete((self._side, self._side)),
            max_episode_steps=self._free,
        )

    def reset(self, key: jax.Array) -> tuple[MineSweeperState, jax.Array]:
        mines = _lay_mines(random_words(key, self._mines), self._side**2).reshape(self._side, self._side)
        state = MineSweeperState(mines, jnp.zeros_like(mines), jnp.zeros((), jnp.int32))
        return state, jnp.zeros((), jnp.int32)

    def step(self, key: jax.Array, state: MineSweeperState, action: jax.Array) -> tuple[Any, TimeStep]:
        lines = jnp.arange(self._side)
        rows = jnp.abs(lines - action[0])[:, None]
        columns = jnp.abs(lines - action[1])
        here = (rows == 0) & (columns == 0)
        near = (rows <= 1) & (columns <= 1)
        mine = (here & state.mines).any()
        again = (here & state.opened).any()
        opened = state.opened | (here & ~state.mines)
        terminated = mine | (opened | state.mines).all()
        time = state.time + 1
        old = jnp.where(again, -0.5 / (self._free - 2), 1 / self._free)
        return MineSweeperState(state.mines, opened, time), TimeStep(
            obs=(near & state.mines).sum(dtype=jnp.int32),
            reward=jnp.where(mine, -0.5 - 1 / self._free, old).astype(jnp.float32),
            terminated=terminated,
            truncated=(time == self._free) & ~terminated,
        )


def _lay_mines(words: jax.Array, squares: int) -> jax.Array:
    """bool[squares] with len(words) of them True, each set as likely; uint32[mines].

    The sample of R. W. Floyd (Bentley and Floyd 1987): the i-th mine is sampled from one square more than the
    one before, and goes to the new one if its place is taken.
    """
    places: list[jax.Array] = []
    for i, word in enumerate(words):
        last = squares - words.shape[0] + i
        place = below(word, last + 1)
        taken = functools.reduce(jnp.logical_or, (place == x for x in places), jnp.zeros((), bool))
        places.append(jnp.where(taken, last, place))
    return (jnp.arange(squares)[:, None] == jnp.stack(places)).any(axis=1)


@flax.struct.dataclass
class ConcentrationState:
    """The table; a card is sampled when it is turned for the first time."""

    kinds: jax.Array  # int32[n], of each card, -1 if it was never turned
    left: jax.Array  # int32[K], the unturned cards of each kind
    up: jax.Array  # bool[n], the cards that stay face up
    first: jax.Array  # int32[], the place of the first card of a pair, -1 where the next card is the first
    time: jax.Array  # int32[], steps so far


class Concentration(JaxEnv):
    """An action turns a card. Two cards of one kind stay face up, others are hidden again.

    Observation MultiDiscrete[(K + 1) * n]: the kind of each of the n cards, K where it is face down; action
    Discrete(n). A pair has a reward of 2 / n. With T the limit of steps, two cards that are no pair (or the
    same card twice) have -2 / T, and a card that was face up already -1 / T for each card that is turned back
    by it. The episode terminates when all cards are face up, and is truncated after T = 2 n steps.

    Args:
      num_decks: of 52 cards.
      deck_type: the kinds that make pairs: "colors" (2) or "ranks" (13).
    """

    def __init__(self, num_decks: int = 1, deck_type: str = "ranks"):
        label = "jaxrl:memory/Concentration"
        self._cards = n = check_decks(f"{label}: num_decks", num_decks)
        self._kinds = KINDS[check_choice(f"{label}: deck_type", deck_type, ("colors", "ranks"))]
        self._limit = math.ceil(2 * n - n / (2 * n - 1))
        self.spec = EnvSpec(
            name=changed_call(label, Concentration, locals()),
            observation_space=MultiDiscrete((self._kinds + 1,) * n),
            action_space=Discrete(n),
            max_episode_steps=self._limit,
        )

    def reset(self, key: jax.Array) -> tuple[ConcentrationState, jax.Array]:
        state = ConcentrationState(
            kinds=jnp.full(self._cards, _UNSEEN, jnp.int32),
            left=full_deck(self._kinds, self._cards),
            up=jnp.zeros(self._cards, bool),
            first=jnp.asarray(_NONE, jnp.int32),
            time=jnp.zeros((), jnp.int32),
        )
        return state, jnp.full(self._cards, self._kinds, jnp.int32)

    def step(self, key: jax.Array, state: ConcentrationState, action: jax.Array) -> tuple[Any, TimeStep]:
        places = jnp.arange(self._cards)
        turned = places == action
        first = places == state.first
        drawn, left = deal(random_words(key, 1)[0], state.left)
        known = state.kinds[action]
        kind = jnp.where(known == _UNSEEN, drawn, known)
        kinds = jnp.where(turned, kind, state.kinds)
        second = state.first != _NONE
        was_up = state.up[action]
        alike = (kind == kinds[state.first]) & (action != state.first)
        pair = second & alike & ~was_up
        miss = jnp.where(was_up, 1 + second, jnp.where(second & ~pair, 2, 0))
        up = state.up | (pair & (turned | first))
        state = ConcentrationState(
            kinds=kinds,
            left=jnp.where(known == _UNSEEN, left, state.left),
            up=up,
            first=jnp.where(was_up | second, _NONE, action.astype(jnp.int32)),
            time=state.time + 1,
        )
        return state, TimeStep(
            obs=jnp.where(up | turned | first, kinds, self._kinds),
            reward=(jnp.where(pair, 2 / self._cards, 0.0) - miss / self._limit).astype(jnp.float32),
            terminated=up.all(),
            truncated=state.time >= self._limit,
        )
