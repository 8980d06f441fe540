"""Levels of the maze: named and random ones, small changes to them, and the distance to the goal.

A level is a dict, which is a task of `jaxrl:Maze`:
  walls      int32[13], a word for each row; its bit x is 1 where column x has a wall
  goal       int32[], the cell 13 y + x
  agent      int32[], the cell where an episode starts
  direction  int32[], where the agent looks then: 0 right, 1 down, 2 left, 3 up

In drawings `#` is a wall, `G` the goal, and `>`, `v`, `<` or `^` the agent and where it looks.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.native.random_words import random_words

SIDE = 13
CELLS = SIDE * SIDE
DIRECTIONS = 4
MOST_WALLS = 60
# The x and y of a step by direction.
STEP_X = np.array([1, 0, -1, 0], np.int32)
STEP_Y = np.array([0, 1, 0, -1], np.int32)

_FULL_ROW = (1 << SIDE) - 1
_FIRST_WORDS = 2  # of a level, before the words of its walls
# What an edit does, of three equally likely kinds; kind 0 does nothing.
_WALL = 1
_GOAL = 2

Level = dict[str, jax.Array]
_AGENT = ">v<^"  # by direction

# Training on random levels never shows these, which were designed for this project.
_TEETH = ".#.#.#.#.#.#. "
_TURNS = "############. ............. .############ ............. "

LAYOUTS = {
    "four_rooms": """
        >.....#......
        ......#......
        ......#......
        .............
        ......#......
        ......#......
        ##.######.###
        ......#......
        ......#......
        ......#......
        .............
        ......#......
        ......#.....G
    """,
    "sixteen_rooms": """
        v..#..#..#...
        .............
        ...#..#..#...
        #.##.###.##.#
        .............
        ...#..#..#...
        #.##.###.##.#
        ...#..#..#...
        .............
        #.##.###.##.#
        ...#..#..#...
        .............
        ...#..#..#..G
    """,
    "comb": f".#.#.#.#G#.#. {_TEETH * 5} >............ {_TEETH * 6}",
    "comb_below": f"{_TEETH * 6} ............< {_TEETH * 5} .#G#.#.#.#.#.",
    "zigzag": f">............ {_TURNS * 2} ############. ............. .############ ............G",
    "spiral": """
        >............
        ############.
        ...........#.
        .#########.#.
        .#.......#.#.
        .#.#####.#.#.
        .#.#G..#.#.#.
        .#.###.#.#.#.
        .#.....#.#.#.
        .#######.#.#.
        .........#.#.
        ##########.#.
        .............
    """,
    "rings": """
        .............
        .###########.
        .#.........#.
        .#.#######.#.
        .#.#.....#.#.
        .#.#.###.#.#.
        ...#.#G#.#...
        .#.#.#.#.#.#.
        .#.#.....#.#.
        .#.###.###.#.
        .#.........#.
        .#####.#####.
        >............
    """,
    "labyrinth": """
        >#.....#.....
        .#.###.#.###.
        .#.#...#.#...
        .#.#.###.#.##
        ...#.....#...
        .#########.#.
        .......#...#.
        ######.#.###.
        .....#.#.#...
        .###.#.#.#.##
        .#...#...#...
        .#.#########.
        .#..........G
    """,
}


def draw(key: jax.Array, max_walls: int) -> Level:
    """A random level: goal and agent on two cells, and up to `max_walls` sampled walls elsewhere.

    The number of samples is uniform. Two of them may hit the same cell, and the goal may be out of reach.
    """
    words = random_words(key, _FIRST_WORDS + -(-max_walls // 2))
    halves = jnp.concatenate([words >> 16, words & 0xFFFF]).reshape(2, -1)
    goal = _uniform(halves[0, 0], CELLS)
    # Any other cell.
    agent = (goal + 1 + _uniform(halves[1, 0], CELLS - 1)) % CELLS
    direction = _uniform(halves[0, 1], DIRECTIONS)
    count = _uniform(halves[1, 1], max_walls + 1)
    cells = _uniform(halves[:, _FIRST_WORDS:].reshape(-1)[:max_walls], CELLS)
    is_wall = (jnp.arange(max_walls) < count) & (cells != goal) & (cells != agent)
    # A scatter takes a third of the time of a reduction by "or"; one beyond the last cell is no wall.
    is_set = jnp.zeros(CELLS, jnp.int32).at[jnp.where(is_wall, cells, CELLS)].set(1, mode="drop")
    shifted = is_set.reshape(SIDE, SIDE) << np.arange(SIDE, dtype=np.int32)[None]
    walls = shifted.sum(1, dtype=jnp.int32)
    return {"agent": agent, "direction": direction, "goal": goal, "walls": walls}


def mutate(key: jax.Array, level: Mapping[str, jax.Array], edits: int) -> Level:
    """The level after so many random edits: each does nothing, turns a cell, or moves the goal.

    Cells of the agent and the goal stay floor, and the agent stays where it is. Where the goal comes to is
    floor from then on.
    """
    agent = level["agent"]

    def edit(at: tuple[jax.Array, jax.Array], word: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        walls, goal = at
        kind = _uniform(word >> 16, 3)
        cell = _uniform(word & 0xFFFF, CELLS)
        turns = (kind == _WALL) & (cell != goal) & (cell != agent)
        moves = (kind == _GOAL) & (cell != agent)
        turned = jnp.where(turns, _bit(cell), 0)
        cleared = jnp.where(moves, _bit(cell), 0)
        return ((walls ^ turned) & ~cleared, jnp.where(moves, cell, goal)), None

    (walls, goal), _ = jax.lax.scan(edit, (level["walls"], level["goal"]), random_words(key, edits))
    return {"agent": agent, "direction": level["direction"], "goal": goal, "walls": walls}


def distance(level: Mapping[str, jax.Array]) -> jax.Array:
    """int32[], the fewest cells to walk from the agent to the goal, turns not counted; -1: out of reach."""
    floor = ~level["walls"] & _FULL_ROW
    goal = _bit(level["goal"])

    def spread(loop: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        reached, _, steps = loop
        # Neighbours in a row are neighbouring bits, in a column the same bit of the adjacent words.
        beside = (reached << 1) | (reached >> 1)
        zero = jnp.zeros(1, reached.dtype)
        above = jnp.concatenate([reached[1:], zero])
        below = jnp.concatenate([zero, reached[:-1]])
        after = (reached | beside | above | below) & floor
        return after, (after != reached).any(), steps + 1

    def goes_on(loop: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        return loop[1] & ((loop[0] & goal) == 0).all()

    start = (_bit(level["agent"]), jnp.ones((), bool), jnp.zeros((), jnp.int32))
    reached, _, steps = jax.lax.while_loop(goes_on, spread, start)
    return jnp.where(((reached & goal) != 0).any(), steps, -1)


def _uniform(half: jax.Array, n: int) -> jax.Array:
    """int32 in [0, n) of 16 random bits; no value is more likely than another by more than n / 2^16."""
    return ((half * jnp.uint32(n)) >> 16).astype(jnp.int32)


def _bit(cell: jax.Array) -> jax.Array:
    """int32[13], the words of rows in which one cell is set."""
    return jnp.where(cell // SIDE == np.arange(SIDE), jnp.left_shift(1, cell % SIDE), 0)


def parse(text: str) -> dict[str, np.ndarray]:
    """The level that a drawing of 13 lines shows."""
    lines = text.split()
    if len(lines) != SIDE or any(len(line) != SIDE for line in lines):
        raise ValueError(f"a maze is {SIDE} lines of {SIDE} characters")
    joined = "".join(lines)
    (agent,) = (i for i, c in enumerate(joined) if c in _AGENT)
    words = [sum(1 << x for x, c in enumerate(line) if c == "#") for line in lines]
    return {
        "agent": np.int32(agent),  # type: ignore[dict-item]
        "direction": np.int32(_AGENT.index(joined[agent])),  # type: ignore[dict-item]
        "goal": np.int32(joined.index("G")),  # type: ignore[dict-item]
        "walls": np.array(words, np.int32),
    }
