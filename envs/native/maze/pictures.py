"""Pictures of the maze, by numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.envs.native.maze.level import SIDE, STEP_X, STEP_Y

_CELL = 16  # pixels a side
_LINE = 1
_BORDER = 4  # cells of wall that a state has around the maze
_FLOOR = (246, 244, 239)
_WALL = (60, 64, 72)
_EDGE = (222, 220, 214)
_SEEN = (255, 236, 170)
_GOAL = (122, 196, 122)
_AGENT = (40, 90, 200)


def draw(state: Any) -> np.ndarray:
    """uint8[208, 208, 3]; y points down. Green is the goal, blue the agent, yellow the floor that it sees."""
    x = int(state.x)
    y = int(state.y)
    direction = int(state.direction)
    ahead = int(STEP_X[direction]), int(STEP_Y[direction])
    seen = {
        (x + i * ahead[0] - j * ahead[1], y + i * ahead[1] + j * ahead[0])
        for i in range(5)
        for j in range(-2, 3)
    }
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
    """A triangle that points ahead."""
    offset = np.arange(_CELL) - (_CELL - 1) / 2
    right, down = np.meshgrid(offset, offset)
    along = right * ahead[0] + down * ahead[1]
    across = right * ahead[1] - down * ahead[0]
    reach = _CELL * 0.35
    inside = (along >= -reach) & (np.abs(across) <= (reach - along) / 2)
    cell = picture[row * _CELL : (row + 1) * _CELL, column * _CELL : (column + 1) * _CELL]
    cell[inside] = _AGENT
