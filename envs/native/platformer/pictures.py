"""Pictures of levels, by numpy alone."""

from __future__ import annotations

import numpy as np

from jaxrl.envs.native.platformer.level import EXIT, MINE, MINE_PART, SOLID, SWITCH, PlatformerLevel
from jaxrl.envs.native.platformer.observations import PlatformerState
from jaxrl.envs.native.platformer.physics import SIZE, TILE

SCALE = 2  # pixels a unit
_ROCK = (98, 104, 116)
_EDGE = (66, 70, 80)
_AIR = (236, 238, 242)
_MINE = (208, 54, 54)
_SWITCH = (242, 178, 40)
_CLOSED = (170, 174, 182)
_OPEN = (84, 176, 96)
_PLAYER = (36, 36, 44)
_COLOURS = np.array([_AIR, _ROCK, _EDGE, _MINE, _SWITCH, _CLOSED, _OPEN, _PLAYER], np.uint8)
_AIR_I, _ROCK_I, _EDGE_I, _MINE_I, _SWITCH_I, _CLOSED_I, _OPEN_I, _PLAYER_I = range(8)


def draw(level: PlatformerLevel, state: PlatformerState) -> np.ndarray:
    """uint8[height, width, 3]: mines are red, the switch yellow, the open exit green, the player black."""
    height = len(level.rows) * TILE
    width = len(level.rows[0]) * TILE
    picture = np.kron(level.tiles_of(SOLID), np.ones((TILE, TILE), int))[:height, :width] * _ROCK_I
    top = (picture == _ROCK_I) & (np.roll(picture, 1, axis=0) == _AIR_I)
    picture[top] = _EDGE_I
    for row, column in np.argwhere(level.tiles_of(MINE)):
        _tile(picture, column, row)[slice(*MINE_PART), slice(*MINE_PART)] = _MINE_I
    if not state.on:
        _tile(picture, *level.place_of(SWITCH))[3:, 2:6] = _SWITCH_I
    _tile(picture, *level.place_of(EXIT))[:, 1:7] = _OPEN_I if state.on else _CLOSED_I
    x = int(state.x)
    y = int(state.y)
    picture[y : y + SIZE, x + 1 : x + SIZE - 1] = _PLAYER_I
    return _COLOURS[np.kron(picture, np.ones((SCALE, SCALE), int))]


def _tile(picture: np.ndarray, column: int, row: int) -> np.ndarray:
    return picture[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
