"""Scripted players of two-player games, Monte-Carlo tree search among them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs import modules
from jaxrl.envs.games import Game
from jaxrl.envs.trees import strong_types

# UCT's constant for results between 0 and 1.
_EXPLORATION = math.sqrt(2.0)
# Moves of a simulation inside the tree, and moves at random that follow them.
_DEEPEST = 64
_LONGEST = 5_000
_UNTRIED = -1
_CHOICE = 0x43484F49
_PLAYOUT = 0x504C4159
RANDOM = "random"
# Monte-Carlo tree search, whose name has the number of simulations for each move.
SEARCH = "mcts-N"
# A trained model of the suite's own, of games that have one.
BASELINE = "baseline"
_SEARCH = re.compile(r"mcts-([1-9][0-9]{0,5})", re.ASCII)
# (state of one game, key) -> action of the seat whose turn it is
Player = Callable[[Any, jax.Array], jax.Array]


@flax.struct.dataclass
class _Tree:
    """One node for each simulation and the root, which is node 0; leaves [N + 1, ...]."""

    state: Any
    gained: jax.Array  # float32[N + 1, 2], what each seat got between the root and the node
    children: jax.Array  # int32[N + 1, A], the node after each move; -1 where none has been made
    visits: jax.Array  # float32[N + 1], simulations that went through it
    total: jax.Array  # float32[N + 1, 2], sums of what each seat got in these, from the root to the end


def search(game: Game, state: Any, key: jax.Array, simulations: int) -> jax.Array:
    """int32[], the move that UCT visits most (Kocsis and Szepesvári 2006), or one of several such moves.

    A simulation descends from the root by the largest

        score_j + sqrt(2) sqrt(ln(n) / n_j)

    over the moves j of the seat whose turn it is, where score_j is its mean result in the n_j simulations
    with that move, between 0 and 1, and n counts all simulations through the state. In the first state with
    an untried move it makes one at random, which becomes a node, and plays at random to the end. The
    result counts for all nodes on the way. Nothing is learnt, and no evaluation of unfinished games is
    needed.

    It sees the whole state, as `greedy` does: what is hidden from a seat, and one chance outcome for each
    node. What a seat gets in a game must be between -1 and 1.
    """
    counts = jnp.where(game.choices(state), visits(game, state, key, simulations), -1.0)
    return _one_of(jax.random.uniform(jax.random.fold_in(key, _CHOICE)), counts == counts.max())


def visits(game: Game, state: Any, key: jax.Array, simulations: int) -> jax.Array:
    """float32[A], how many of the simulations of `search` begin with each move."""
    tree = _root(game, state, simulations)
    simulate = lambda i, tree: _simulate(game, tree, i, jax.random.fold_in(key, i))  # noqa: E731
    tree = jax.lax.fori_loop(1, simulations + 1, simulate, tree)
    children = tree.children[0]
    return jnp.where(children == _UNTRIED, 0.0, tree.visits[children])


def _root(game: Game, state: Any, simulations: int) -> _Tree:
    nodes = simulations + 1
    state = strong_types(state)
    (count,) = game.choices(state).shape
    return _Tree(
        state=jax.tree.map(lambda x: jnp.broadcast_to(x, (nodes, *x.shape)), state),
        gained=jnp.zeros((nodes, 2), jnp.float32),
        children=jnp.full((nodes, count), _UNTRIED, jnp.int32),
        visits=jnp.zeros(nodes, jnp.float32),
        total=jnp.zeros((nodes, 2), jnp.float32),
    )


def _simulate(game: Game, tree: _Tree, number: jax.Array, key: jax.Array) -> _Tree:
    """The tree after a simulation, whose new node, if it has one, has this number."""
    draw = jax.random.uniform(jax.random.fold_in(key, 0))
    play_key = jax.random.fold_in(key, 1)
    path, depth = _descend(game, tree)
    leaf = path[depth]
    state = _at(tree, leaf)
    is_over = game.is_over(state)
    untried = _untried(game, tree, leaf, state)
    expands = ~is_over & jnp.any(untried)
    choices = game.choices(state)
    action = _one_of(draw, jnp.where(expands, untried, choices))
    played = strong_types(game.play(play_key, state, action))
    gained = tree.gained[leaf] + jnp.where(is_over, 0.0, game.rewards(played))
    state = jax.tree.map(lambda before, after: jnp.where(is_over, before, after), state, played)
    # Beyond the last node nothing is written.
    child = jnp.where(expands, number, len(tree.visits))
    path = path.at[depth + 1].set(child)
    result = gained + _playout(game, state, jax.random.fold_in(key, _PLAYOUT))
    return _Tree(
        state=jax.tree.map(lambda x, y: x.at[number].set(y), tree.state, state),
        gained=tree.gained.at[number].set(gained),
        children=tree.children.at[leaf, action].set(jnp.where(expands, number, tree.children[leaf, action])),
        visits=tree.visits.at[path].add(1.0, mode="drop"),
        total=tree.total.at[path].add(jnp.broadcast_to(result, (len(path), 2)), mode="drop"),
    )


def _descend(game: Game, tree: _Tree) -> tuple[jax.Array, jax.Array]:
    """(the nodes from the root to one with an untried move or an end, the place of the last one).

    Places after the last one are beyond the tree.
    """
    beyond = len(tree.visits)
    path = jnp.full(min(_DEEPEST, beyond) + 1, beyond, jnp.int32).at[0].set(0)

    def goes_on(loop: tuple[jax.Array, jax.Array]) -> jax.Array:
        path, depth = loop
        node = path[depth]
        state = _at(tree, node)
        is_done = game.is_over(state) | jnp.any(_untried(game, tree, node, state))
        return ~is_done & (depth + 2 < len(path))

    def descend(loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        path, depth = loop
        node = path[depth]
        state = _at(tree, node)
        children = tree.children[node]
        n_j = jnp.maximum(tree.visits[children], 1.0)
        score = (tree.total[children, game.seat(state)] / n_j + 1.0) / 2.0
        bound = score + _EXPLORATION * jnp.sqrt(jnp.log(jnp.maximum(tree.visits[node], 1.0)) / n_j)
        action = jnp.argmax(jnp.where(game.choices(state), bound, -jnp.inf))
        return path.at[depth + 1].set(children[action]), depth + 1

    return jax.lax.while_loop(goes_on, descend, (path, jnp.zeros((), jnp.int32)))


def _playout(game: Game, state: Any, key: jax.Array) -> jax.Array:
    """float32[2], what each seat gets when both play at random."""

    def goes_on(loop: tuple[jax.Array, Any, jax.Array]) -> jax.Array:
        count, state, _ = loop
        return ~game.is_over(state) & (count < _LONGEST)

    def move(loop: tuple[jax.Array, Any, jax.Array]) -> tuple[jax.Array, Any, jax.Array]:
        count, state, gained = loop
        move_key = jax.random.fold_in(key, count)
        action = _one_of(jax.random.uniform(move_key), game.choices(state))
        state = strong_types(game.play(move_key, state, action))
        return count + 1, state, gained + game.rewards(state)

    start = (jnp.zeros((), jnp.int32), state, jnp.zeros(2, jnp.float32))
    return jax.lax.while_loop(goes_on, move, start)[2]


def _at(tree: _Tree, node: jax.Array) -> Any:
    return jax.tree.map(lambda x: x[node], tree.state)


def _untried(game: Game, tree: _Tree, node: jax.Array, state: Any) -> jax.Array:
    """bool[A], the moves allowed in a node that have not been made."""
    return game.choices(state) & (tree.children[node] == _UNTRIED)


def _one_of(draw: jax.Array, allowed: jax.Array) -> jax.Array:
    """int32[], one of the moves bool[A], evenly, by a number between 0 and 1: one number, not one a move."""
    rank = jnp.cumsum(allowed, dtype=jnp.int32)
    place = jnp.floor(draw * rank[-1].astype(jnp.float32)).astype(jnp.int32)
    return jnp.argmax(rank > jnp.minimum(place, rank[-1] - 1)).astype(jnp.int32)


def names(game: Game) -> tuple[str, ...]:
    """The scripted players of a game; N stands for a number."""
    models = () if game.load_baseline is None else (BASELINE,)
    return (*_players(game), *models, SEARCH)


def is_scripted(game: Game, name: str) -> bool:
    return name in names(game)[:-1] or _SEARCH.fullmatch(name) is not None


def module_of(arguments: Mapping[str, Any]) -> str | None:
    """The module of the argument `opponent`, which making it imports; None for the scripted ones."""
    opponent = arguments.get("opponent")
    return opponent.rpartition(":")[0] or None if isinstance(opponent, str) else None


def make(label: str, game: Game, name: str) -> Player:
    """Makes a player of a game; ValueError, which begins with `label`, if there is none of that name.

    Args:
      label: of the setting that names it.
      game: the rules.
      name: "random" chooses uniformly among the allowed moves; "greedy" among the moves with the highest
        immediate reward, such as a winning one; "minimax" among the best ones, in solved games; "mcts-100"
        searches with 100 simulations, see `search`; "baseline" samples the policy that the game's suite
        has published, if any; "path.to.module:function" is called with (observation, bool[A] of the allowed
        moves, key).
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
        listed = f"must be one of {', '.join(names(game))}, or must be of the form path.to.module:name"
        raise ValueError(f"{label}: opponent (={name!r}) {listed}")
    function = modules.load_attribute(f"{label}: opponent", name)
    if not callable(function) or isinstance(function, type):
        raise ValueError(f"{label}: opponent (={name!r}) must name a function")
    return lambda state, key: function(game.observe(state, game.seat(state)), game.choices(state), key)


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
