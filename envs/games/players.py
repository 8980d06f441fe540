"""Scripted players of games of two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs import modules
from jaxrl.envs.games.game import Game

RANDOM = "random"
# (state of one game, key) -> action of the seat whose turn it is
Player = Callable[[Any, jax.Array], jax.Array]


def names(game: Game) -> tuple[str, ...]:
    """The scripted players of a game."""
    return tuple(_players(game))


def module_of(arguments: Mapping[str, Any]) -> str | None:
    """The module of the argument `opponent`, which making it imports; None for the scripted ones."""
    opponent = arguments.get("opponent")
    return opponent.rpartition(":")[0] or None if isinstance(opponent, str) else None


def make(label: str, game: Game, name: str) -> Player:
    """Makes a player.

    Args:
      label: of what asks for it, for the error.
      game: that it plays.
      name: "random" chooses evenly among the allowed moves; "greedy" among those that give it most at once,
        such as one that wins; "minimax" among the best ones, in games that are solved;
        "path.to.module:function" is called with (observation, bool[A] of the allowed moves, key).

    Raises:
      ValueError: there is no such player.
    """
    found = _players(game)
    if name in found:
        return found[name]
    if not isinstance(name, str) or ":" not in name:
        listed = ", ".join(found)
        raise ValueError(
            f"{label}: opponent (={name!r}) must be one of {listed}, "
            "or must be of the form path.to.module:name"
        )
    function = modules.load_attribute(f"{label}: opponent", name)
    if not callable(function) or isinstance(function, type):
        raise ValueError(f"{label}: opponent (={name!r}) must be random or name a function")
    chosen: Player = lambda state, key: function(  # noqa: E731
        game.observe(state, game.seat(state)), game.choices(state), key
    )
    return chosen


def _players(game: Game) -> Mapping[str, Player]:
    found: dict[str, Player] = {
        RANDOM: lambda state, key: evenly(key, game.choices(state)),
        "greedy": lambda state, key: greedy(game, state, key),
    }
    solution = getattr(game, "best_moves", None)
    if solution is not None:
        found["minimax"] = lambda state, key: evenly(key, solution(state))
    return found


def evenly(key: jax.Array, allowed: jax.Array) -> jax.Array:
    """int32[], one of the moves bool[A] that are allowed, each with the same probability."""
    return jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)


def greedy(game: Game, state: Any, key: jax.Array) -> jax.Array:
    """int32[], a move that gives the one who makes it most at once: it looks one ply ahead."""
    seat, allowed = game.seat(state), game.choices(state)
    choice_key, play_key = jax.random.split(key)

    def gain(action: jax.Array) -> jax.Array:
        return game.rewards(game.play(play_key, state, action))[seat]

    gains = jnp.where(allowed, jax.vmap(gain)(jnp.arange(len(allowed), dtype=jnp.int32)), -jnp.inf)
    return evenly(choice_key, gains == gains.max())
