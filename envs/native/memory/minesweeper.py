"""MineSweeper: open all squares without a mine, from numbers that are shown once."""

from __future__ import annotations

import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Discrete, EnvSpec, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_call, check_choice
from jaxrl.envs.native.memory.cards import below
from jaxrl.envs.native.random_words import random_words

# Squares a side, and mines.
_BOARDS = {"easy": (4, 2), "medium": (6, 6), "hard": (8, 10)}


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
