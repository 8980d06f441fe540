"""`jaxrl:Maze`: what the agent sees, how it moves, and when episodes end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_choice, check_positive, check_whole
from jaxrl.envs.native import maze_levels as levels
from jaxrl.envs.native.maze_levels import (
    CELLS,
    DIRECTIONS,
    LAYOUTS,
    MOST_WALLS,
    SIDE,
    STEP_X,
    STEP_Y,
    Level,
    parse,
)

_NAME = "jaxrl:Maze"
_RANDOM = "random"
LEFT, RIGHT, FORWARD = range(3)
VIEW = 5  # cells a side: four ahead and two to each side
_BORDER = VIEW - 1  # cells around the maze that can be seen: all walls
_WIDE = SIDE + 2 * _BORDER
_WIDE_ROW = (1 << _WIDE) - 1
# How far ahead the rows of the view are, and how far to the right its columns.
_AHEAD = np.arange(VIEW - 1, -1, -1, dtype=np.int32)
_ASIDE = np.arange(VIEW, dtype=np.int32) - VIEW // 2
# Of pictures: pixels of a cell's side and of the line beside it, colours.
_CELL = 16
_LINE = 1
_FLOOR = (246, 244, 239)
_WALL = (60, 64, 72)
_EDGE = (222, 220, 214)
_SEEN = (255, 236, 170)
_GOAL = (122, 196, 122)
_AGENT = (40, 90, 200)


@flax.struct.dataclass
class MazeState:
    """A maze in the middle of an episode; int32[] where nothing else is said."""

    walls: jax.Array  # int32[21], the rows of the level with a border of four cells of wall around them
    x: jax.Array  # of the agent
    y: jax.Array
    direction: jax.Array  # as in a level
    goal_x: jax.Array
    goal_y: jax.Array
    time: jax.Array


class Maze(JaxEnv):
    """An agent that sees five by five cells looks for the goal in a maze of 13 x 13; docs/maze.md.

    A task is a level, see `jaxrl.envs.native.maze_levels`. A level with goal and agent on one cell stands for
    a random one.

    Args:
      level: the level without a given task: "random", or one of the mazes with names.
      max_walls: of a random level.
      max_steps: an episode is truncated after so many.
      edits: random changes that `mutate` makes.
    """

    def __init__(
        self, level: str = _RANDOM, max_walls: int = MOST_WALLS, max_steps: int = 250, edits: int = 5
    ):
        label = f"{_NAME}: "
        check_choice(f"{label}level", level, (_RANDOM, *LAYOUTS))
        self._max_walls = check_whole(f"{label}max_walls", max_walls, 1, CELLS)
        self._max_steps = check_positive(f"{label}max_steps", max_steps)
        self._edits = check_positive(f"{label}edits", edits, CELLS)
        self._level = level
        sizes = {"agent": CELLS, "direction": DIRECTIONS, "goal": CELLS}
        places = tuple((name, Discrete(size)) for name, size in sizes.items())
        self.spec = EnvSpec(
            name=changed_call(_NAME, Maze, locals()),
            observation_space=Box.of(0.0, 1.0, (2 * VIEW * VIEW + DIRECTIONS,)),
            action_space=Discrete(3),
            max_episode_steps=max_steps,
            reports=(InfoMetric("success", "max"),),
            task_space=Dict((*places, ("walls", Box.of(0, (1 << SIDE) - 1, (SIDE,), np.int32)))),
        )

    @property
    def default_task(self) -> Level:
        """A random level, or the one that the constructor names."""
        if self._level == _RANDOM:
            zero = jnp.zeros((), jnp.int32)
            return {"agent": zero, "direction": zero, "goal": zero, "walls": jnp.zeros(SIDE, jnp.int32)}
        return {name: jnp.asarray(x) for name, x in parse(LAYOUTS[self._level]).items()}

    @property
    def named_tasks(self) -> Mapping[str, Any]:
        return {name: parse(text) for name, text in LAYOUTS.items()}

    def draw_task(self, key: jax.Array) -> Level:
        return levels.draw(key, self._max_walls)

    def mutate(self, key: jax.Array, task: Mapping[str, jax.Array]) -> Level:
        """The level with some walls turned, and sometimes its goal moved."""
        return levels.mutate(key, task, self._edits)

    def is_solvable(self, task: Mapping[str, jax.Array]) -> jax.Array:
        return levels.distance(task) >= 0

    def reset(self, key: jax.Array, task: Mapping[str, jax.Array] | None = None) -> tuple[MazeState, Any]:
        given = self.default_task if task is None else task
        drawn = self.draw_task(key)
        is_random = given["goal"] == given["agent"]
        level = {name: jnp.where(is_random, drawn[name], x) for name, x in given.items()}
        side = jnp.full(_BORDER, _WIDE_ROW, jnp.int32)
        edge = _WIDE_ROW & ~(((1 << SIDE) - 1) << _BORDER)
        state = MazeState(
            walls=jnp.concatenate([side, (level["walls"] << _BORDER) | edge, side]),
            x=level["agent"] % SIDE,
            y=level["agent"] // SIDE,
            direction=level["direction"],
            goal_x=level["goal"] % SIDE,
            goal_y=level["goal"] // SIDE,
            time=jnp.zeros((), jnp.int32),
        )
        return state, self._observe(state)

    def step(self, key: jax.Array, state: MazeState, action: jax.Array) -> tuple[MazeState, TimeStep]:
        turn = jnp.where(action == RIGHT, 1, jnp.where(action == LEFT, DIRECTIONS - 1, 0))
        direction = (state.direction + turn) % DIRECTIONS
        goes = action == FORWARD
        x, y = (
            here + jnp.where(goes, jnp.asarray(step)[direction], 0)
            for here, step in ((state.x, STEP_X), (state.y, STEP_Y))
        )
        free = ((state.walls[y + _BORDER] >> (x + _BORDER)) & 1) == 0
        x = jnp.where(free, x, state.x)
        y = jnp.where(free, y, state.y)
        success = goes & (x == state.goal_x) & (y == state.goal_y)
        time = state.time + 1
        after = dataclasses.replace(state, x=x, y=y, direction=direction, time=time)
        reward = 1.0 - 0.9 * time.astype(jnp.float32) / self._max_steps
        return after, TimeStep(
            obs=self._observe(after),
            reward=jnp.where(success, reward, 0.0),
            terminated=success,
            truncated=time >= self._max_steps,
            info={"success": success},
        )

    def render(self, state: MazeState) -> np.ndarray:
        """uint8[height, width, 3]: the maze from above, with the cells that the agent sees."""
        return draw(jax.device_get(state))

    def _observe(self, state: MazeState) -> jax.Array:
        """Rows and columns that the agent sees: five words to read instead of 25 cells."""
        ahead_x, ahead_y = (jnp.asarray(step)[state.direction] for step in (STEP_X, STEP_Y))
        is_upright = ahead_x == 0  # the rows of the view are rows of the maze
        # To the right of (x, y) is (-y, x), for y points down. They may lie outside the maze.
        x = state.x + jnp.where(is_upright, -_ASIDE * ahead_y, _AHEAD * ahead_x)
        y = state.y + jnp.where(is_upright, _AHEAD * ahead_y, _ASIDE * ahead_x)
        walls = (state.walls[y + _BORDER][:, None] >> (x + _BORDER)[None]) & 1
        goal = (y == state.goal_y)[:, None] & (x == state.goal_x)[None]
        # The farthest row first, from left to right.
        seen = [jnp.where(is_upright, cells, cells.T) for cells in (walls, goal)]
        direction = jnp.arange(DIRECTIONS) == state.direction
        return jnp.concatenate([x.reshape(-1).astype(jnp.float32) for x in (*seen, direction)])


def draw(state: Any) -> np.ndarray:
    """uint8[208, 208, 3]; y points down. Green is the goal, blue the agent, yellow the floor that it sees."""
    x = int(state.x)
    y = int(state.y)
    direction = int(state.direction)
    ahead = int(STEP_X[direction]), int(STEP_Y[direction])
    around = [(i, j) for i in range(5) for j in range(-2, 3)]
    seen = {(x + i * ahead[0] - j * ahead[1], y + i * ahead[1] + j * ahead[0]) for i, j in around}
    picture = np.full((SIDE * _CELL, SIDE * _CELL, 3), _EDGE, np.uint8)
    for row in range(SIDE):
        for column in range(SIDE):
            is_wall = (int(state.walls[row + _BORDER]) >> (column + _BORDER)) & 1
            colour = _SEEN if (column, row) in seen else _FLOOR
            _fill(picture, column, row, _WALL if is_wall else colour)
    _fill(picture, int(state.goal_x), int(state.goal_y), _GOAL)
    _arrow(picture, x, y, ahead)
    return picture


def _fill(picture: np.ndarray, column: int, row: int, colour: tuple[int, int, int]) -> None:
    top = row * _CELL
    left = column * _CELL
    picture[top + _LINE : top + _CELL, left + _LINE : left + _CELL] = colour


def _arrow(picture: np.ndarray, column: int, row: int, ahead: tuple[int, int]) -> None:
    offset = np.arange(_CELL) - (_CELL - 1) / 2
    right, down = np.meshgrid(offset, offset)
    along = right * ahead[0] + down * ahead[1]
    across = right * ahead[1] - down * ahead[0]
    reach = _CELL * 0.35
    inside = (along >= -reach) & (np.abs(across) <= (reach - along) / 2)
    cell = picture[row * _CELL : (row + 1) * _CELL, column * _CELL : (column + 1) * _CELL]
    cell[inside] = _AGENT
