"""Evaluations during training: on the environment, on one never trained on, and on a suite."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from jaxrl.algorithms import Agent
from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.evaluation.evaluator import EvaluationTask, Evaluator, Modes, Played
from jaxrl.evaluation.result import (
    RecentReturns,
    Result,
    add_means,
    deciding_mode,
    modes_of,
    report_values,
    samples,
)
from jaxrl.evaluation.suites import definition
from jaxrl.evaluation.suites.levels import SuiteLevels, SuitePlayer
from jaxrl.evaluation.suites.summary import metrics
from jaxrl.experience.episodes import Episodes
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.types import Acting


@dataclass(frozen=True)
class EvaluationPlan:
    """The environments of each evaluation, by the prefix of their metrics, and `evaluate.suite`, or None."""

    tasks: Mapping[str, EvaluationTask]
    suite: SuiteLevels | None

    @classmethod
    def of(cls, config: Config, spec: EnvSpec) -> EvaluationPlan:
        """The plan of a configuration, of whose environment `spec` is the spec.

        Raises:
          ConfigError: the suite is wrong, or has a level that the policy cannot play.
        """
        tasks = {"eval/": EvaluationTask.of(config.env, spec)}
        if unseen := config.evaluate.unseen:
            reports = EpisodeReports.of(registry.spec_of(unseen, config.env.wrappers), config.env.success)
            tasks["eval/unseen_"] = EvaluationTask(unseen, config.env.wrappers, reports)
        suite = None
        if config.evaluate.suite:
            found = definition.read(config.evaluate.suite, "evaluate.suite")
            definition.require_metric_names(found)
            suite = SuiteLevels.of(found, spec, config.env)
        return cls(tasks, suite)

    @property
    def every_task(self) -> set[EvaluationTask]:
        """The tasks that need an evaluator."""
        categories = self.suite.categories.values() if self.suite else ()
        return {*self.tasks.values(), *(level.task for category in categories for level in category)}


@dataclass(frozen=True)
class Evaluation:
    """One evaluation.

    Attributes:
      results: in the environment trained on, by mode.
      mode: the one that decides.
      row: metrics, `eval/...` in the mode that decides and, of several, `eval/MODE/...` in each.
      samples: returns and lengths of the single episodes, by names like the row's.
    """

    results: Mapping[str, Result]
    mode: str
    row: Mapping[str, float]
    samples: Mapping[str, Any]

    @property
    def deciding(self) -> Result:
        """The result that decides on the best checkpoint and the end of the run."""
        return self.results[self.mode]


class Evaluators:
    """Plays a plan with the policy of a run, in the `modes` of `evaluate.modes` that the policy has."""

    def __init__(
        self,
        config: Config,
        plan: EvaluationPlan,
        evaluator_of: Callable[[EvaluationTask], Evaluator],
        agent: Agent,
    ) -> None:
        self.modes = modes_of(agent, config.evaluate.modes)
        self._config = config
        self._plan = plan
        self._evaluators = {task: evaluator_of(task) for task in plan.every_task}
        self._suite = SuitePlayer(plan.suite, self._evaluators.__getitem__) if plan.suite else None

    @property
    def compiled(self) -> list[Any]:
        """The programs that have been compiled so far."""
        return [program for each in self._evaluators.values() for program in each.compiled]

    def play(
        self,
        prefix: str,
        state: Acting,
        iteration: int,
        episodes: int | None = None,
        modes: Modes | None = None,
    ) -> Played:
        """Plays episodes of one environment; the configuration gives what is left out here."""
        count = episodes or self._config.evaluate.episodes
        evaluator = self._evaluators[self._plan.tasks[prefix]]
        return evaluator.play(state, self._key(iteration), count, modes or self.modes)

    def _key(self, iteration: int) -> jax.Array:
        """The key of the evaluation after so many iterations."""
        return jax.random.fold_in(jax.random.key(self._config.seed), iteration)

    def compile(self, state: Acting) -> list[Callable[[], object]]:
        """Jobs that compile ahead what a call takes, for threads; `state` may be abstract."""
        episodes = self._config.evaluate.episodes
        jobs: list[Callable[[], object]] = [
            functools.partial(self._evaluators[task].compile, state, episodes, self.modes)
            for task in self._plan.tasks.values()
        ]
        jobs += self._suite.compile(state, self.modes) if self._suite else []
        return [*jobs, lambda: self._key(0)]

    def __call__(self, state: Acting, iteration: int, recent: RecentReturns) -> Evaluation:
        """Plays episodes of all, as configured.

        Args:
          iteration: iterations made, which decide the episodes.
          recent: of the evaluations before, for the choice of the mode that decides.
        """
        played = {prefix: self.play(prefix, state, iteration) for prefix in self._plan.tasks}
        of_suite = self._suite.play(state, self.modes) if self._suite else {}
        results = {mode: Result.of(played["eval/"][mode], mode) for mode in self.modes}
        decides = deciding_mode(add_means(recent, {mode: result.mean for mode, result in results.items()}))
        row: dict[str, float] = {}
        found: dict[str, Any] = {}
        for mode in self.modes:
            values: dict[str, float] = {}
            singles: dict[str, Any] = {}
            for prefix, episodes in played.items():
                values |= _values(prefix, self._plan.tasks[prefix], episodes[mode])
                singles |= {f"{prefix}{name}": x for name, x in samples(episodes[mode]).items()}
            values |= metrics(of_suite[mode]) if of_suite else {}
            if mode == decides:
                row = values | row
                found = singles | found
            if len(self.modes) > 1:
                row |= {_of_mode(name, mode): x for name, x in values.items()}
                found |= {_of_mode(name, mode): x for name, x in singles.items()}
        return Evaluation(results, decides, row, found)


def _values(prefix: str, task: EvaluationTask, episodes: Episodes) -> dict[str, float]:
    """The metrics of the episodes of one environment in one mode."""
    result = Result.of(episodes)
    values = {"return": result.mean, "return_std": result.std, "length": result.mean_length}
    values |= report_values(task.reports, episodes)
    if result.unfinished:  # Their returns are of what was played.
        values["cut_off"] = float(result.unfinished)
    return {f"{prefix}{name}": value for name, value in values.items()}


def _of_mode(name: str, mode: str) -> str:
    """`eval/greedy/unseen_return` of `eval/unseen_return`."""
    return f"eval/{mode}/{name.removeprefix('eval/')}"
