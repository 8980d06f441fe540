"""Plays a suite with one policy."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

import jax

from jaxrl.evaluation.evaluator import Evaluator, Modes
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.evaluation.suites.levels import Outcomes, SuiteLevels
from jaxrl.types import Acting, Array


class SuitePlayer:
    """Plays the episodes that a suite asks for: the same ones, decided by its seed, at every call."""

    def __init__(self, levels: SuiteLevels, evaluator_of: Callable[[EvaluationTask], Evaluator]) -> None:
        """`evaluator_of` returns the evaluator of a task."""
        self._seed = levels.suite.seed
        self._categories = {
            name: [(level, evaluator_of(level.task)) for level in category]
            for name, category in levels.categories.items()
        }

    def compile(self, state: Acting, modes: Modes) -> list[Callable[[], None]]:
        """Jobs that compile ahead what `play` takes, for threads; `state` may be abstract.

        Levels of one environment that differ in their tasks alone share a program.
        """
        jobs: dict[tuple[int, int, bool], Callable[[], None]] = {}
        for category in self._categories.values():
            for level, evaluator in category:
                job = functools.partial(evaluator.compile, state, level.episodes, modes, level.tasks)
                jobs.setdefault((id(evaluator), level.episodes, level.tasks is None), job)
        return [*jobs.values()]

    def play(self, state: Acting, modes: Modes) -> dict[str, dict[str, list[Outcomes]]]:
        """Plays exactly the episodes of every level in each mode; by mode, then by category.

        Raises:
          HostEnvError: an environment failed.
          Cancelled: a signal ended the wait.
        """
        root = jax.random.key(self._seed)
        found: dict[str, dict[str, list[Outcomes]]] = {mode: {} for mode in modes}
        for name, category in self._categories.items():
            played = [
                evaluator.play(state, level_key(root, name, index), level.episodes, modes, level.tasks)
                for index, (level, evaluator) in enumerate(category)
            ]
            for mode in modes:
                levels = zip(category, played, strict=True)
                found[mode][name] = [level.outcomes(each[mode]) for (level, _), each in levels]
        return found


def level_key(root: Array, category: str, index: int) -> Array:
    """The key of a level, by its place: an environment that is there twice plays other episodes."""
    return jax.random.fold_in(jax.random.fold_in(root, zlib.crc32(category.encode())), index)
