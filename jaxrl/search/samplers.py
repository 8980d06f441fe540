"""Samplers that need only the trials in the folder of a search: a grid, random samples."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxrl.config.errors import ConfigError
from jaxrl.search.space import Space
from jaxrl.search.trials import StudyTrial

# The reason why values cannot be trained together, or "".
Check = Callable[[Mapping[str, Any]], str]
MOST_DRAWS = 1000  # in a row without a valid point


class Sampler(abc.ABC):
    """Chooses the point of each trial from its number and the trials before; has no state."""

    @abc.abstractmethod
    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        """The values of trial `number`, valid together; None if no point is left."""


class GridSampler(Sampler):
    """Every valid combination; if they are more than the trials, in an order that the seed shuffles.

    None is tried twice, also if the number of trials was another before, and with it the order.
    """

    def __init__(self, space: Space, check: Check, budget: int, seed: int) -> None:
        """Lists the points of the grid; ConfigError if no combination is valid."""
        grid = list(space.grid())
        self._points = [values for values in grid if not check(values)]
        self.size = len(self._points)
        self.invalid = len(grid) - len(self._points)
        if not self._points:
            raise ConfigError(f"no combination of the space is valid: {check(grid[0])}")
        if self.size > budget:
            order = np.random.default_rng(seed).permutation(self.size)
            self._points = [self._points[index] for index in order]

    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        tried = {_key(trial.values) for trial in trials}
        return next((values for values in self._points if _key(values) not in tried), None)


def _key(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(values.items()))


@dataclass(frozen=True)
class RandomSampler(Sampler):
    """Independent samples, each determined by the seed and the trial's number."""

    space: Space
    check: Check
    seed: int

    def point(self, number: int, trials: Sequence[StudyTrial]) -> dict[str, Any] | None:
        return self.draw(number)

    def draw(self, number: int) -> dict[str, Any]:
        """The values of trial `number`."""
        return draw(self.space, self.check, generator(self.seed, number))


def generator(seed: int, number: int, place: str = "") -> np.random.Generator:
    """Random numbers for one trial, from the seed, its number and optionally a place."""
    return np.random.default_rng((seed, number, *place.encode()))


def draw(space: Space, check: Check, rng: np.random.Generator) -> dict[str, Any]:
    """A random valid point of the space; ConfigError if none was found."""
    problem = ""
    for _ in range(MOST_DRAWS):
        values = space.at(rng.random(len(space.dimensions)))
        if not (problem := check(values)):
            return values
    raise ConfigError(f"none of {MOST_DRAWS} random points of the space is valid: {problem}")
