"""Mazes by hunt-and-kill, drawn on the device."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxrl.envs.native.memory.cards import choose

FREE = 0
WALL = 1
START = 2
GOAL = 3


def words_of_maze(side: int) -> int:
    """The number of random words that `hunt_and_kill` takes."""
    return 2 * side**2 - 1


def hunt_and_kill(words: jax.Array, side: int) -> jax.Array:
    """int8[2 * side + 1] squared, FREE or WALL: a maze of side by side cells, each pair joined by one path.

    From a random cell the walk goes to random neighbours that were not visited, until there is none. Then it
    goes on from a random cell that was visited and has one (the random order of mazelib's HuntAndKill, which
    stops after a number of trials, so that very few of its mazes lack cells).

    Args:
      words: uint32[words_of_maze(side)], random.
      side: cells a side.
    """
    cells = jnp.arange(side * side)
    row = cells // side
    column = cells % side
    # Right, down, left, up; whether there is a cell, and how far it is.
    inside = jnp.stack([column < side - 1, row < side - 1, column > 0, row > 0])
    moves = jnp.array([1, side, -1, -side])

    def visit(i: jax.Array, walk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        visited, right, down, here = walk
        unvisited = jnp.stack([jnp.roll(~visited, -move) for move in (1, side, -1, -side)]) & inside
        goes_on = unvisited.any(axis=0)
        hunted = choose(words[2 * i - 1], visited & goes_on)
        here = jnp.where(goes_on[here], here, hunted)
        way = choose(words[2 * i], unvisited[:, here])
        there = here + moves[way]
        # A passage belongs to its left or upper cell.
        owner = cells == jnp.minimum(here, there)
        across = way % 2 == 0
        return visited | (cells == there), right | (owner & across), down | (owner & ~across), there

    start = choose(words[0], jnp.ones(side * side, bool))
    none = jnp.zeros(side * side, bool)
    _, right, down, _ = jax.lax.fori_loop(1, side * side, visit, (cells == start, none, none, start))
    blocks = jnp.stack([jnp.ones_like(right), right, down, none]).reshape(2, 2, side, side)
    free = blocks.transpose(2, 0, 3, 1).reshape(2 * side, 2 * side)
    return jnp.where(jnp.pad(free, ((1, 0), (1, 0))), FREE, WALL).astype(jnp.int8)


def entrances(words: jax.Array, side: int) -> tuple[jax.Array, jax.Array]:
    """Two places int32[2], row and column, in opposite outer walls, each before a random cell.

    Args:
      words: uint32[3], random.
      side: cells a side.
    """
    cells = jnp.ones(side, bool)
    first, second = (2 * choose(word, cells) + 1 for word in words[:2])
    which = choose(words[2], jnp.ones(4, bool))
    near = jnp.where(which % 2 == 0, 0, 2 * side)
    far = jnp.where(which % 2 == 0, 2 * side, 0)
    vertical = which < 2
    start = jnp.where(vertical, jnp.stack([near, first]), jnp.stack([first, near]))
    return start, jnp.where(vertical, jnp.stack([far, second]), jnp.stack([second, far]))
