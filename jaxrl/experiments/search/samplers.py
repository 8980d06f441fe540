"""What chooses the points of a study that its folder alone decides: a grid, random draws."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.config.errors import ConfigError
from jaxrl.experiments.search.space import Space
from jaxrl.experiments.search.trials import StudyTrial

# Why values cannot be trained together, or "".
Check = Callable[[Mapping[str, Any]], str]
MOST_DRAWS = 1000  # in a row that are not valid


class Sampler(abc.ABC):
    """Chooses the point of each trial from its number and the trials before; keeps nothing in between."""

    @abc.abstractmethod
    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        """The values of trial `number`, valid together; None where nothing is left to try."""


class GridSampler(Sampler):
    """Every valid combination, in an order that the seed shuffles where there are more than trials."""

    def __init__(self, space: Space, check: Check, budget: int, seed: int) -> None:
        """Goes through the grid.

        Raises:
          ConfigError: no combination is valid.
        """
        grid = list(space.grid())
        self._points = [values for values in grid if not check(values)]
        self.size, self.invalid = len(self._points), len(grid) - len(self._points)
        if not self._points:
            raise ConfigError(f"no combination of the space is valid: {check(grid[0])}")
        if self.size > budget:
            order = np.random.default_rng(seed).permutation(self.size)
            self._points = [self._points[index] for index in order]

    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        return self._points[number] if number < len(self._points) else None


class RandomSampler(Sampler):
    """Independent draws; the seed and its number decide a trial's."""

    def __init__(self, space: Space, check: Check, seed: int) -> None:
        self._space, self._check, self._seed = space, check, seed

    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        return self.drawn(number)

    def drawn(self, number: int) -> dict[str, Any]:
        """The values of trial `number`."""
        return draw(self._space, self._check, generator(self._seed, number))


def generator(seed: int, number: int, place: str = "") -> np.random.Generator:
    """Random numbers for one trial, which the seed, its number and, where given, a place decide."""
    return np.random.default_rng((seed, number, *place.encode()))


def draw(space: Space, check: Check, rng: np.random.Generator) -> dict[str, Any]:
    """A random point of the space that is valid.

    Raises:
      ConfigError: there seems to be none.
    """
    problem = ""
    for _ in range(MOST_DRAWS):
        values = space.at(rng.random(len(space.dimensions)))
        if not (problem := check(values)):
            return values
    raise ConfigError(f"none of {MOST_DRAWS} random points of the space is valid: {problem}")
