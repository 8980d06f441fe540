"""The movement of the player: integers only, the same for numpy (the solver) and JAX (the environment).

A tile is 8 units a side and the player a square of 6. A position is the square's upper left corner,
in units from the level's upper left corner; x points right, y down. A step is one tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TILE, SIZE = 8, 6  # units a side, of a tile and of the player
MAX_RUN, MAX_FALL = 4, 6  # units a tick; less than a tile, so that nothing is skipped
JUMP, KICK = 6, 5  # upward speed of a jump, and of one off a wall
NUM_ACTIONS = 6  # left, none, right; and the same with the jump key held

_SLIDE = 1  # fastest fall along a wall that is pressed against
_SHORT = 2  # fastest rise once the jump key is up
_LATEST_KICK = 3  # no kick off a wall while rising as fast as this, or holding the key would kick at once

# Whether the player's square at (x, y) would overlap something solid.
Blocked = Callable[[Any, Any], Any]


def advance(
    xp: Any, blocked: Blocked, body: tuple[Any, Any, Any, Any], action: Any
) -> tuple[Any, Any, Any, Any]:
    """The body after one tick: int32 (x, y, velocity x, velocity y), numbers or arrays.

    `xp` is numpy or jax.numpy; the action, int32, is `move + 1 + 3 * jump` of a move -1, 0 or 1.
    """
    x, y, vx, vy = body
    move = action % 3 - 1
    jump = action >= 3
    ground = blocked(x, y + 1)
    left = blocked(x - 1, y)
    right = blocked(x + 1, y)
    rests = ground & (move == 0)
    vx = xp.clip(vx + move - xp.where(rests, xp.sign(vx), 0), -MAX_RUN, MAX_RUN)
    fall = xp.minimum(vy + 1, MAX_FALL)
    slides = ((move < 0) & left) | ((move > 0) & right)
    fall = xp.where(slides, xp.minimum(fall, _SLIDE), fall)
    fall = xp.where(jump, fall, xp.maximum(fall, -_SHORT))
    kicks = jump & xp.logical_not(ground) & (left | right) & (vy > -_LATEST_KICK)
    vy = xp.where(ground, xp.where(jump, -JUMP, 0), xp.where(kicks, -KICK, fall))
    vx = xp.where(kicks, xp.where(left, MAX_RUN, -MAX_RUN), vx)
    x, vx = _slide(xp, lambda place: blocked(place, y), x, vx)
    y, vy = _slide(xp, lambda place: blocked(x, place), y, vy)
    return x, y, vx, vy


def jump_matters(blocked: Blocked, body: tuple[Any, Any, Any, Any]) -> Any:
    """True if `advance` depends on the jump key: at a jump, at a kick, and in a rise that it prolongs."""
    x, y, _, vy = body
    wall = blocked(x - 1, y) | blocked(x + 1, y)
    return blocked(x, y + 1) | (wall & (vy > -_LATEST_KICK)) | (vy + 1 < -_SHORT)


def _slide(xp: Any, blocked: Callable[[Any], Any], place: Any, speed: Any) -> tuple[Any, Any]:
    """Moves along one axis, up to what is in the way."""
    wished = place + speed
    stops = blocked(wished)
    forward = ((wished + SIZE - 1) // TILE) * TILE - SIZE
    back = (wished // TILE + 1) * TILE
    return xp.where(stops, xp.where(speed > 0, forward, back), wished), xp.where(stops, 0, speed)


def spans(place: Any, low: int = 0, high: int = TILE) -> tuple[Any, Any, Any, Any]:
    """The two tiles, possibly the same, that the player at x or y covers along one axis.

    Then whether the player overlaps the part of the first, and of the second, from `low` to `high` in units.
    """
    first = place // TILE
    second = (place + SIZE - 1) // TILE

    def overlaps(tile: Any) -> Any:
        return (place < tile * TILE + high) & (place + SIZE > tile * TILE + low)

    return first, second, overlaps(first), overlaps(second)


def start_of(column: Any, row: Any) -> tuple[Any, Any]:
    """(x, y) of a player who stands in the middle of a tile."""
    return column * TILE + (TILE - SIZE) // 2, row * TILE + TILE - SIZE
