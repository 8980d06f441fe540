"""A game between a person, who types moves, and a contestant."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.evaluation.tournament.contestants import Contestant
from jaxrl.types import Array

_LEAVE = "q"


class GameSession:
    """A game in progress; the contestant answers each move of the person, whose seat begins if it is 0."""

    def __init__(self, opponent: Contestant, seat: int, key: Array) -> None:
        """Starts a game, in which the opponent may have the first move."""
        self.seat = seat
        self._opponent = opponent
        self._game = opponent.game
        start_key, self._key = jax.random.split(key)
        self._state = self._game.start(start_key)
        self._carry = opponent.initial_carry(1)
        self._fresh = True
        self._lead = 0.0
        self._moves = 0
        self._play = jax.jit(self._game.play)
        self._choose = jax.jit(opponent.move)
        self._answer()

    @property
    def is_over(self) -> bool:
        return bool(self._game.is_over(self._state))

    @property
    def allowed(self) -> list[int]:
        """The moves that the person may make."""
        return [int(move) for move in np.flatnonzero(self._game.choices(self._state))]

    @property
    def outcome(self) -> str:
        """The result for the person, in words."""
        if self._lead == 0:
            return "a draw"
        return "you win" if self._lead > 0 else "you lose"

    def board(self) -> str:
        """The cells of the first two planes of the person's observation: x its own, o the opponent's.

        An empty cell has the number of the move into it, if that is allowed, or "."; columns have theirs
        above them. "" if the observation is no board of [height, width, planes].
        """
        obs = np.asarray(self._game.observe(self._state, jnp.int32(self.seat)))
        if obs.ndim != 3 or obs.shape[-1] < 2:
            return ""
        height, width = obs.shape[:2]
        (moves,) = self._game.choices(self._state).shape
        empty = np.full((height, width), ".", dtype=object)
        has_cells = moves - len(self._game.move_names) == height * width
        if has_cells and not self.is_over:
            for move in self.allowed:
                if move < height * width:
                    empty.flat[move] = str(move)
        cells = np.where(obs[..., 0] > 0, "x", np.where(obs[..., 1] > 0, "o", empty))
        rows = [[str(column) for column in range(width)]] if moves == width else []
        rows += cells.tolist()
        size = max(len(cell) for row in rows for cell in row)
        return "\n".join(" ".join(cell.rjust(size) for cell in row) for row in rows)

    def number(self, text: str) -> int | None:
        """The allowed move that a text names, by its number or name; None if it names none."""
        by_name = {name: move for move, name in self._game.move_names.items()}
        is_number = text.isascii() and text.isdecimal()
        move = by_name.get(text, int(text) if is_number else None)
        return move if move in self.allowed else None

    def describe(self, moves: Sequence[int]) -> str:
        """Moves in words: numbers, neighbours as ranges, and names, as in "0-3, 7, pass"."""
        names = self._game.move_names
        listed = _ranges([move for move in moves if move not in names])
        return ", ".join(filter(None, [listed, *(names[move] for move in moves if move in names)]))

    def move(self, action: int) -> list[int]:
        """Makes the person's move and the opponent's; returns the latter."""
        self._advance(jnp.int32(action))
        return self._answer()

    def _answer(self) -> list[int]:
        """The opponent's moves until it is the person's turn or the game is over."""
        made: list[int] = []
        while not self.is_over and int(self._game.seat(self._state)) != self.seat:
            keys = jax.random.fold_in(self._key, 2 * self._moves)[None]
            states: Any = jax.tree.map(lambda x: x[None], self._state)
            action, self._carry = self._choose(
                self._opponent.acting, states, self._carry, jnp.array([self._fresh]), keys
            )
            self._fresh = False
            made.append(int(action[0]))
            self._advance(action[0])
        return made

    def _advance(self, action: Array) -> None:
        key = jax.random.fold_in(self._key, 2 * self._moves + 1)
        self._state = self._play(key, self._state, action)
        self._lead += float(self._game.leads(self._state)[self.seat])
        self._moves += 1


def converse(session: GameSession, read: Callable[[str], str], say: Callable[[str], None]) -> bool:
    """Plays a game to its end in text; False if the person left it.

    Args:
      read: asks for a line with a prompt; raises EOFError if there is none.
      say: shows a text.
    """
    say(f"you play x and {'begin' if session.seat == 0 else 'move second'}; q leaves")
    while not session.is_over:
        say(session.board())
        try:
            text = read(f"your move ({session.describe(session.allowed)}): ").strip()
        except EOFError:
            text = _LEAVE
        if text == _LEAVE:
            return False
        move = session.number(text)
        if move is None:
            say(f"{text!r} is no move that is allowed here")
            continue
        for action in session.move(move):
            say(f"the opponent moves {session.describe([action])}")
    say(session.board())
    say(session.outcome)
    return True


def _ranges(moves: list[int]) -> str:
    """Numbers, neighbours as ranges: 0-3, 7."""
    groups = itertools.groupby(enumerate(moves), lambda each: each[1] - each[0])
    parts = [[move for _, move in group] for _, group in groups]
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
