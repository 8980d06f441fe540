"""Tic-tac-toe, with its solution."""

from __future__ import annotations

import functools

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.games import Game

_CELLS = 9
_LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])
_DIGITS = 3 ** np.arange(_CELLS, dtype=np.int32)


@flax.struct.dataclass
class TicTacToeState:
    """int32[9], the board by rows: 0 is empty, 1 is of seat 0, 2 is of seat 1."""

    board: jax.Array


class TicTacToe(Game):
    """Three in a row win. The one who wins gets 1, the other -1; a draw gives nothing.

    Observation float32[3, 3, 2]: 1 on the observer's own cells in the first plane, on the other's in the
    second.
    Action: the cell, by rows. With perfect play the game is a draw.
    """

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name="jaxrl:TicTacToe",
            observation_space=Box.of(0.0, 1.0, (3, 3, 2)),
            action_space=Discrete(_CELLS),
            max_episode_steps=5,
            has_action_mask=True,
        )

    def start(self, key: jax.Array) -> TicTacToeState:
        return TicTacToeState(jnp.zeros(_CELLS, jnp.int32))

    def play(self, key: jax.Array, state: TicTacToeState, action: jax.Array) -> TicTacToeState:
        return TicTacToeState(state.board.at[action].set(self.seat(state) + 1))

    def seat(self, state: TicTacToeState) -> jax.Array:
        return jnp.sum(state.board > 0, dtype=jnp.int32) % 2

    def observe(self, state: TicTacToeState, seat: jax.Array) -> jax.Array:
        own = state.board == seat + 1
        other = state.board == 2 - seat
        return jnp.stack([own, other], axis=-1).astype(jnp.float32).reshape(3, 3, 2)

    def action_mask(self, state: TicTacToeState) -> jax.Array:
        return state.board == 0

    def rewards(self, state: TicTacToeState) -> jax.Array:
        first = self._wins(state, 1).astype(jnp.float32) - self._wins(state, 2).astype(jnp.float32)
        return jnp.stack([first, -first])

    def ends(self, state: TicTacToeState) -> tuple[jax.Array, jax.Array]:
        over = self._wins(state, 1) | self._wins(state, 2) | jnp.all(state.board > 0)
        return over, jnp.zeros_like(over)

    def best_moves(self, state: TicTacToeState) -> jax.Array:
        """bool[9], the moves that lead to the best result against perfect play."""
        code = jnp.sum(state.board * _DIGITS, dtype=jnp.int32)
        return jnp.asarray(_solution())[code]

    def _wins(self, state: TicTacToeState, mark: int) -> jax.Array:
        return jnp.any(jnp.all(state.board[_LINES] == mark, axis=1))


@functools.cache
def _solution() -> np.ndarray:
    """bool[3^9, 9], the best moves on each board that play can reach; all moves if it is over."""
    best = np.ones((3**_CELLS, _CELLS), bool)
    known: dict[tuple[int, ...], int] = {}

    def value(board: tuple[int, ...], mover: int) -> int:
        """The result for `mover`, whose turn it is: 1, 0 or -1."""
        if board in known:
            return known[board]
        if any(all(board[i] == 3 - mover for i in line) for line in _LINES):
            known[board] = -1
            return -1
        empty = [i for i in range(_CELLS) if board[i] == 0]
        results = {i: -value((*board[:i], mover, *board[i + 1 :]), 3 - mover) for i in empty}
        known[board] = max(results.values(), default=0)
        if results:
            moves = [i for i, result in results.items() if result == known[board]]
            best[int(np.dot(board, _DIGITS))] = np.isin(np.arange(_CELLS), moves)
        return known[board]

    value((0,) * _CELLS, 1)
    return best
