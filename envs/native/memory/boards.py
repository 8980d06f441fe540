"""Battleship and MineSweeper: boards whose squares are shown once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_call, check_choice, check_positive, check_whole
from jaxrl.envs.native.memory.cards import below, choose
from jaxrl.envs.native.random_words import random_words

_LARGEST_BOARD = 64
_RESET_RATIO = 16
# Of MineSweeper: squares a side, and mines.
_BOARDS = {"easy": (4, 2), "medium": (6, 6), "hard": (8, 10)}


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
        return BattleshipState(ships, jnp.zeros_like(ships), jnp.zeros((), jnp.int32)), jnp.zeros(
            (), jnp.int32
        )

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
