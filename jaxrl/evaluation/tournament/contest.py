"""Many games between two contestants, as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.trees import select_rows, strong_types
from jaxrl.evaluation.tournament.contestants import Contestant
from jaxrl.types import Array, PyTree

# Longer games are draws.
MOST_TURNS = 5_000
_START = 0x53544152
_CHOICE = 0x43484F49
_MOVE = 0x4D4F5645


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
