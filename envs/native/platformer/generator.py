"""Levels from a seed: random ones of each category; only those proved solvable are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxrl.envs.native.platformer.level import (
    CATEGORIES,
    EMPTY,
    EXIT,
    MINE,
    SOLID,
    START,
    SWITCH,
    PlatformerLevel,
)
from jaxrl.envs.native.platformer.solver import solve

_MOST_TRIES = 500
Grid = np.ndarray


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The recipe for levels of one category."""

    size: tuple[int, int]  # rows, columns
    build: Callable[[np.random.Generator, Grid], None]  # draws solid and empty tiles
    mines: tuple[int, int]  # fewest and most
    steps: tuple[int, int]  # fewest and most of the shortest solution


def generate(category: str, seed: int) -> PlatformerLevel:
    """The level of that category and seed; RuntimeError if hundreds of tries gave none."""
    recipe = RECIPES[category]
    rng = np.random.default_rng([CATEGORIES.index(category), seed])
    for _ in range(_MOST_TRIES):
        rows = _draw(rng, recipe)
        if rows is None:
            continue
        level = PlatformerLevel(rows, category, seed)
        solution = solve(level)
        if solution is not None and recipe.steps[0] <= len(solution) <= recipe.steps[1]:
            return dataclasses.replace(level, solution=solution)
    raise RuntimeError(f"no level of the category {category} in {_MOST_TRIES} tries from the seed {seed}")


def _draw(rng: np.random.Generator, recipe: Recipe) -> tuple[str, ...] | None:
    grid = np.full(recipe.size, SOLID)
    grid[1:-1, 1:-1] = EMPTY
    recipe.build(rng, grid)
    standing = np.argwhere((grid[1:-2, 1:-1] == EMPTY) & (grid[2:-1, 1:-1] == SOLID)) + 1
    standing = np.concatenate([standing, _floor(grid)])
    if len(standing) < 3:
        return None
    places = standing[rng.permutation(len(standing))[:3]]
    for letter, (row, column) in zip((START, SWITCH, EXIT), places, strict=True):
        grid[row, column] = letter
    _lay_mines(rng, grid, places, int(rng.integers(recipe.mines[0], recipe.mines[1] + 1)))
    return tuple("".join(line) for line in grid)


def _floor(grid: Grid) -> Grid:
    """Empty places of the lowest row, which stand on the border."""
    columns = np.flatnonzero(grid[-2] == EMPTY)
    return np.stack([np.full_like(columns, len(grid) - 2), columns], axis=1)


def _lay_mines(rng: np.random.Generator, grid: Grid, kept: Grid, count: int) -> None:
    """Puts mines on floors and below ceilings, not beside the start, the switch or the exit."""
    solid = grid == SOLID
    beside = np.zeros_like(solid)
    beside[1:-1] = solid[2:] | solid[:-2]
    free = np.argwhere((grid == EMPTY) & beside)
    near = (np.abs(free[:, None] - kept[None]).max(-1) <= 1).any(-1)
    free = free[~near]
    for row, column in free[rng.permutation(len(free))[:count]]:
        grid[row, column] = MINE


def _hills(rng: np.random.Generator, grid: Grid) -> None:
    """A floor of low steps."""
    height = int(rng.integers(1, 3))
    for column in range(1, grid.shape[1] - 1):
        height = int(np.clip(height + rng.choice((-1, 0, 0, 1)), 1, grid.shape[0] - 5))
        grid[-height:, column] = SOLID


def _ledges(rng: np.random.Generator, grid: Grid) -> None:
    """Hills, and short platforms above them."""
    _hills(rng, grid)
    for row in range(3, grid.shape[0] - 4, 2):
        for _ in range(2):
            length = int(rng.integers(2, 5))
            column = int(rng.integers(1, grid.shape[1] - 1 - length))
            grid[row, column : column + length] = SOLID


def _storeys(rng: np.random.Generator, grid: Grid) -> None:
    """Floors over one another, with a shaft through each, and low walls."""
    rows, columns = grid.shape
    for storey, row in enumerate(range(4, rows - 3, 4)):
        grid[row, 1:-1] = SOLID
        width = int(rng.integers(2, 4))
        offset = int(rng.integers(1, columns // 3))
        column = offset if storey % 2 else columns - 1 - offset - width
        grid[row, column : column + width] = EMPTY
    for row in range(3, rows, 4):
        for column in rng.integers(2, columns - 2, size=3):
            if grid[row, column] == EMPTY and (row + 1 == rows - 1 or grid[row + 1, column] == SOLID):
                grid[row, column] = SOLID


def _rooms(rng: np.random.Generator, grid: Grid) -> None:
    """A maze of 4 by 3 rooms: doors along a random tree, and one more."""
    across, down = 4, 3
    width, height = 6, 5
    rows, columns = grid.shape
    grid[height : rows - 1 : height, :] = SOLID
    grid[:, width - 1 : columns - 1 : width] = SOLID
    joined = {(0, 0)}
    doors = [((r, c), (r + 1, c)) for r in range(down - 1) for c in range(across)]
    doors += [((r, c), (r, c + 1)) for r in range(down) for c in range(across - 1)]
    extra = doors[int(rng.integers(len(doors)))]
    while len(joined) < across * down:
        a, b = doors[int(rng.integers(len(doors)))]
        if (a in joined) != (b in joined):
            joined |= {a, b}
            _open_door(rng, grid, a, b, width, height)
    _open_door(rng, grid, *extra, width, height)


def _open_door(
    rng: np.random.Generator, grid: Grid, a: tuple[int, int], b: tuple[int, int], width: int, height: int
) -> None:
    top = a[0] * height + 1
    left = a[1] * width + (a[1] == 0)
    if a[0] == b[0]:
        column = b[1] * width - 1
        row = min(top + height - 3 + int(rng.integers(0, 2)), grid.shape[0] - 3)
        grid[row - 1 : row + 1, column] = EMPTY
        grid[row + 1 : b[0] * height + height, column] = SOLID
    else:
        row = b[0] * height
        column = left + 1 + int(rng.integers(0, width - 4))
        grid[row, column : column + 2] = EMPTY
        # A step below the hole: the storey is higher than a jump.
        grid[row + 3 : min(row + height, grid.shape[0] - 1), max(column - 1, 1)] = SOLID


RECIPES = {
    "simple": Recipe((9, 14), _hills, (0, 0), (15, 120)),
    "medium": Recipe((12, 18), _ledges, (2, 4), (30, 160)),
    "complex": Recipe((16, 24), _storeys, (3, 6), (70, 300)),
    "mine_heavy": Recipe((12, 20), _ledges, (12, 20), (30, 200)),
    "exploration": Recipe((16, 24), _rooms, (0, 3), (90, 350)),
}
