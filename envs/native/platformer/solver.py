"""The fewest steps that solve a level: an exhaustive search of the environment's own moves.

Positions and velocities are integers, so a level has finitely many states: (x, y, velocity x, velocity y,
switch). A breadth-first search over all of them with all six actions, by the environment's own `advance`,
finds the exit after the fewest steps there are, or proves that no actions reach it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jaxrl.envs.native.platformer import level as tiles
from jaxrl.envs.native.platformer import physics
from jaxrl.envs.native.platformer.level import PlatformerLevel
from jaxrl.envs.native.platformer.physics import MAX_FALL, MAX_RUN, NUM_ACTIONS, SIZE, TILE

_HEIGHT = tiles.ROWS * TILE
_WIDTH = tiles.COLUMNS * TILE
_FALLS = 2 * MAX_FALL + 1
_RUNS = 2 * MAX_RUN + 1
_STATES = 2 * _HEIGHT * _WIDTH * _FALLS * _RUNS
_KEY = NUM_ACTIONS // 2  # from an action to the same with the jump key held
Body = tuple[Any, Any, Any, Any]


class Contacts:
    """The things that the player touches at every position of a level; bool[height, width] in units each."""

    def __init__(self, level: PlatformerLevel):
        self.solid = _touching(level.tiles_of(tiles.SOLID))
        self.mine = _touching(level.tiles_of(tiles.MINE), *tiles.MINE_PART)
        self.switch, self.exit = (_touching(level.tiles_of(letter)) for letter in (tiles.SWITCH, tiles.EXIT))
        column, row = level.place_of(tiles.START)
        self.start: Any = tuple(np.int32(part) for part in (*physics.start_of(column, row), 0, 0))

    def step(
        self, body: Body, on: np.ndarray, action: Any
    ) -> tuple[Body, np.ndarray, np.ndarray, np.ndarray]:
        """One step; returns (body, whether the switch is on, a mine was touched, the exit reached)."""
        x, y, vx, vy = physics.advance(np, self.blocked, body, action)
        on = on | _at(self.switch, x, y)
        mine = _at(self.mine, x, y)
        return (x, y, vx, vy), on, mine, on & _at(self.exit, x, y) & ~mine

    def blocked(self, x: Any, y: Any) -> Any:
        return _at(self.solid, x, y)


def solve(level: PlatformerLevel) -> str | None:
    """One of the shortest solutions, a digit for each step; None if the level has none."""
    contacts = Contacts(level)
    seen, parent, chosen, order = _memory()
    seen[:] = False
    body: Any = tuple(np.array([part]) for part in contacts.start)
    on = np.array([False])
    frontier = _pack(body, on)
    seen[frontier], start = True, int(frontier[0])
    while len(frontier):
        matters = physics.jump_matters(contacts.blocked, body)
        state, action = _moves(matters)
        body, on, mine, done = contacts.step(_rows(body, state), on[state], action)
        if done.any():
            last = int(np.argmax(done))
            # Without the key if it makes no difference.
            digit = action[last] - (0 if matters[state[last]] else _KEY)
            return _way_to(int(frontier[state[last]]), parent, chosen, start) + str(digit)
        new = _pack(body, on)
        fresh = np.flatnonzero(~mine & ~seen[new])
        places = new[fresh]
        # Of several ways to one state any one stays: the last that is written here.
        order[places] = fresh
        fresh = fresh[order[places] == fresh]
        parent[new[fresh]], chosen[new[fresh]] = frontier[state[fresh]], action[fresh]
        body = _rows(body, fresh)
        on = on[fresh]
        frontier = new[fresh]
        seen[frontier] = True
    return None


def solves(level: PlatformerLevel, actions: str) -> bool:
    """True if these actions reach the exit with the last of them, and not before."""
    contacts = Contacts(level)
    body = contacts.start
    on: Any = np.bool_(False)
    for t, action in enumerate(actions):
        body, on, mine, done = contacts.step(body, on, np.int32(int(action)))
        if mine or done:
            return bool(done) and t == len(actions) - 1
    return False


@functools.cache
def _memory() -> tuple[np.ndarray, ...]:
    """The arrays that a search writes, one entry per state; shared by all searches."""
    return tuple(np.zeros(_STATES, dtype) for dtype in (bool, np.int32, np.int8, np.int32))


def _way_to(state: int, parent: np.ndarray, chosen: np.ndarray, start: int) -> str:
    actions = []
    while state != start:
        actions.append(str(chosen[state]))
        state = int(parent[state])
    return "".join(reversed(actions))


def _pack(body: Body, on: np.ndarray) -> np.ndarray:
    x, y, vx, vy = body
    velocity = (vy + MAX_FALL) * _RUNS + vx + MAX_RUN
    return ((on * _HEIGHT + y) * _WIDTH + x) * (_FALLS * _RUNS) + velocity


def _rows(body: Body, index: np.ndarray) -> Body:
    x, y, vx, vy = body
    return x[index], y[index], vx[index], vy[index]


def _moves(jump_matters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(state, action) of all moves in the order of the states; without the key only where it matters."""
    wanted = np.ones((len(jump_matters), NUM_ACTIONS), bool)
    wanted[:, :_KEY] = jump_matters[:, None]
    state, action = np.nonzero(wanted)
    return state, action.astype(np.int32)


def _at(table: np.ndarray, x: Any, y: Any) -> Any:
    # As a vector: much faster than by rows and columns.
    return table.reshape(-1).take(y * _WIDTH + x)


def _touching(filled: np.ndarray, low: int = 0, high: int = TILE) -> np.ndarray:
    """bool[height, width] in units: whether the player there overlaps that part of a filled tile."""
    part = np.zeros((TILE, TILE), bool)
    part[low:high, low:high] = True
    units = np.kron(filled, part).astype(np.int32)
    # Sums of squares of the player's size; beyond the level its edge is repeated.
    sums = np.zeros((_HEIGHT + SIZE + 1, _WIDTH + SIZE + 1), np.int32)
    sums[1:, 1:] = np.pad(units, ((0, SIZE), (0, SIZE)), mode="edge").cumsum(0).cumsum(1)
    inside = sums[SIZE:, SIZE:] - sums[:-SIZE, SIZE:] - sums[SIZE:, :-SIZE] + sums[:-SIZE, :-SIZE]
    return inside[:_HEIGHT, :_WIDTH] > 0
