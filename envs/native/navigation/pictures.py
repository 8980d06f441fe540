"""Pictures of the room, by numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrl.envs.native.navigation.room import GOAL_RADIUS, HALF_WIDTH, ROBOT_RADIUS, NavigationState
from jaxrl.envs.native.navigation.sensors import directions, lidar

SIZE = 240  # pixels a side
_WALL = 4  # pixels
_FLOOR = (246, 244, 239)
_EDGE = (60, 64, 72)
_RAY = (214, 222, 236)
_GOAL = (122, 196, 122)
_STANDS = (128, 132, 140)
_MOVES = (230, 140, 60)
_ROBOT = (40, 90, 200)
_POINTS_PER_RAY = 160


def draw(state: NavigationState, rays: int) -> np.ndarray:
    """uint8[240, 240, 3]; y points up. Green is the goal, grey stands, orange moves, blue is the robot."""
    picture = np.full((SIZE, SIZE, 3), _FLOOR, np.uint8)
    _disc(picture, state.goal, GOAL_RADIUS, _GOAL)
    position = np.asarray(state.position)
    obstacles = state.obstacles
    reach = np.asarray(lidar(state.position, obstacles, rays))
    along = np.linspace(0.0, 1.0, _POINTS_PER_RAY)[:, None] * reach
    x, y = (position[i] + along * ray for i, ray in enumerate(directions(rays)))
    picture[_column(-y), _column(x)] = _RAY
    for k in range(len(obstacles.x)):
        colour = _MOVES if obstacles.direction_x[k] or obstacles.direction_y[k] else _STANDS
        _disc(picture, (obstacles.x[k], obstacles.y[k]), obstacles.radius[k], colour)
    _disc(picture, position, ROBOT_RADIUS, _ROBOT)
    picture[:_WALL] = picture[-_WALL:] = picture[:, :_WALL] = picture[:, -_WALL:] = _EDGE
    return picture


def _disc(picture: np.ndarray, centre: Any, radius: Any, colour: tuple[int, int, int]) -> None:
    x, y = np.asarray(centre)
    middle = (np.arange(SIZE) + 0.5) / SIZE * 2 * HALF_WIDTH - HALF_WIDTH
    inside = (middle[None] - x) ** 2 + (-middle[:, None] - y) ** 2 <= radius * abs(radius)
    picture[inside] = colour


def _column(x: np.ndarray) -> np.ndarray:
    return np.clip(((x + HALF_WIDTH) / (2 * HALF_WIDTH) * SIZE).astype(int), 0, SIZE - 1)
