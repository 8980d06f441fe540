"""Scripted players of two-player games."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs import modules
from jaxrl.envs.games.game import Game
from jaxrl.envs.games.tree_search import search

RANDOM = "random"
# Monte-Carlo tree search, whose name has the number of simulations for each move.
SEARCH = "mcts-N"
# A trained model of the suite's own, of games that have one.
BASELINE = "baseline"
_SEARCH = re.compile(r"mcts-([1-9][0-9]{0,5})", re.ASCII)
# (state of one game, key) -> action of the seat whose turn it is
Player = Callable[[Any, jax.Array], jax.Array]


def names(game: Game) -> tuple[str, ...]:
    """The scripted players of a game; N stands for a number."""
    models = () if game.load_baseline is None else (BASELINE,)
    return (*_players(game), *models, SEARCH)


def is_scripted(game: Game, name: str) -> bool:
    """True if a name is one of `names`, with a number for N."""
    return name in names(game)[:-1] or _SEARCH.fullmatch(name) is not None


def module_of(arguments: Mapping[str, Any]) -> str | None:
    """The module of the argument `opponent`, which making it imports; None for the scripted ones."""
    opponent = arguments.get("opponent")
    return opponent.rpartition(":")[0] or None if isinstance(opponent, str) else None


def make(label: str, game: Game, name: str) -> Player:
    """Makes a player.

    Args:
      label: of the setting that names it, for the error.
      game: that it plays.
      name: "random" chooses uniformly among the allowed moves; "greedy" among the moves with the highest
        immediate reward, such as a winning one; "minimax" among the best ones, in solved games; "mcts-100"
        searches with 100 simulations, see `tree_search`; "baseline" samples the policy that the game's suite
        has published, if any; "path.to.module:function" is called with (observation, bool[A] of the allowed
        moves, key).

    Raises:
      ValueError: there is no such player.
    """
    found = _players(game)
    if name in found:
        return found[name]
    if name == BASELINE and game.load_baseline is not None:
        return _of_logits(game, game.load_baseline())
    searches = _SEARCH.fullmatch(name) if isinstance(name, str) else None
    if searches is not None:
        simulations = int(searches[1])
        return lambda state, key: search(game, state, key, simulations)
    if not isinstance(name, str) or ":" not in name:
        listed = ", ".join(names(game))
        raise ValueError(
            f"{label}: opponent (={name!r}) must be one of {listed}, "
            "or must be of the form path.to.module:name"
        )
    function = modules.load_attribute(f"{label}: opponent", name)
    if not callable(function) or isinstance(function, type):
        raise ValueError(f"{label}: opponent (={name!r}) must name a function")
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


def _of_logits(game: Game, logits: Callable[[Any], jax.Array]) -> Player:
    """Samples the softmax of the logits [A], given the observation of the seat that has the turn."""

    def move(state: Any, key: jax.Array) -> jax.Array:
        allowed = game.choices(state)
        found = jnp.where(allowed, logits(game.observe(state, game.seat(state))), -jnp.inf)
        return jax.random.categorical(key, found).astype(jnp.int32)

    return move


def evenly(key: jax.Array, allowed: jax.Array) -> jax.Array:
    """int32[], one of the moves bool[A] that are allowed, each with the same probability."""
    return jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf)).astype(jnp.int32)


def greedy(game: Game, state: Any, key: jax.Array) -> jax.Array:
    """int32[], a move that gives the one who makes it most at once: it looks one ply ahead."""
    seat = game.seat(state)
    allowed = game.choices(state)
    choice_key, play_key = jax.random.split(key)

    def gain(action: jax.Array) -> jax.Array:
        return game.rewards(game.play(play_key, state, action))[seat]

    gains = jnp.where(allowed, jax.vmap(gain)(jnp.arange(len(allowed), dtype=jnp.int32)), -jnp.inf)
    return evenly(choice_key, gains == gains.max())
