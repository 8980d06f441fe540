"""Plays a suite with one policy."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax

from jaxrl.evaluation.evaluator import Evaluator
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.evaluation.suites.levels import Outcomes, SuiteLevels
from jaxrl.types import PolicyState


class SuitePlayer:
    """Plays the episodes that a suite asks for: the same ones, decided by its seed, at every call."""

    def __init__(self, levels: SuiteLevels, evaluator_of: Callable[[EvaluationTask], Evaluator]) -> None:
        """`evaluator_of` gives what plays a task."""
        self._seed = levels.suite.seed
        self._categories = {
            name: [(level, evaluator_of(level.task)) for level in category]
            for name, category in levels.categories.items()
        }

    def compile(self, state: PolicyState, sample: bool) -> list[Callable[[], None]]:
        """Jobs that compile ahead what `play` takes, for threads; `state` may be abstract."""
        return [
            functools.partial(evaluator.compile, state, level.episodes, sample)
            for category in self._categories.values()
            for level, evaluator in category
        ]

    def play(self, state: PolicyState, sample: bool) -> dict[str, list[Outcomes]]:
        """Plays exactly the episodes of every level, by category.

        Raises:
          HostEnvError: an environment failed.
          Cancelled: a signal asked not to wait.
        """
        key = jax.random.key(self._seed)
        return {
            name: [
                level.outcomes(evaluator.play(state, key, level.episodes, sample))
                for level, evaluator in category
            ]
            for name, category in self._categories.items()
        }
