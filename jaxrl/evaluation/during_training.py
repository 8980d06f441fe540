"""Evaluations during training: on the environment, on one never trained on, and on a suite."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.evaluation.evaluator import Evaluator
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.evaluation.result import Result, report_values, samples
from jaxrl.evaluation.suites import definition
from jaxrl.evaluation.suites.levels import SuiteLevels
from jaxrl.evaluation.suites.player import SuitePlayer
from jaxrl.evaluation.suites.summary import metrics
from jaxrl.experience.episodes import Episodes
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.types import Acting


@dataclass(frozen=True)
class EvaluationPlan:
    """The environments that are played at each evaluation.

    Attributes:
      tasks: by the prefix of their metrics.
      suite: `evaluate.suite`, or None.
    """

    tasks: Mapping[str, EvaluationTask]
    suite: SuiteLevels | None

    @classmethod
    def of(cls, config: Config, spec: EnvSpec) -> EvaluationPlan:
        """The plan of a configuration, of whose environment `spec` is the spec.

        Raises:
          ConfigError: the suite is wrong, or has a level that the policy cannot play.
        """
        tasks = {"eval/": EvaluationTask.of(config, spec)}
        if unseen := config.evaluate.unseen:
            reports = EpisodeReports.of(registry.spec_of(unseen, config.env.wrappers), config.env.success)
            tasks["eval/unseen_"] = EvaluationTask(unseen, config.env.wrappers, reports)
        suite = None
        if config.evaluate.suite:
            found = definition.read(config.evaluate.suite, "evaluate.suite")
            definition.require_metric_names(found)
            suite = SuiteLevels.of(found, spec, config.env.wrappers)
        return cls(tasks, suite)

    @property
    def every_task(self) -> set[EvaluationTask]:
        """The tasks that need an evaluator."""
        levels = self.suite.tasks if self.suite else ()
        return {*self.tasks.values(), *levels}


class Evaluators:
    """Plays a plan with the policy of a run."""

    def __init__(
        self, config: Config, plan: EvaluationPlan, evaluator_of: Callable[[EvaluationTask], Evaluator]
    ) -> None:
        """`evaluator_of` makes what plays a task."""
        self._config, self._plan = config, plan
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
        sample: bool | None = None,
    ) -> Episodes:
        """Plays episodes of one environment; what is not said here, the configuration says."""
        key = jax.random.fold_in(jax.random.key(self._config.seed), iteration)
        evaluate = self._config.evaluate
        sampled = evaluate.sample if sample is None else sample
        evaluator = self._evaluators[self._plan.tasks[prefix]]
        return evaluator.play(state, key, episodes or evaluate.episodes, sampled)

    def compile(self, state: Acting) -> list[Callable[[], None]]:
        """Jobs that compile ahead what a call takes, for threads; `state` may be abstract."""
        episodes, sample = self._config.evaluate.episodes, self._config.evaluate.sample
        own = [self._evaluators[task] for task in self._plan.tasks.values()]
        jobs = [functools.partial(each.compile, state, episodes, sample) for each in own]
        return jobs + (self._suite.compile(state, sample) if self._suite else [])

    def __call__(self, state: Acting, iteration: int) -> tuple[Result, dict[str, float], dict[str, Any]]:
        """Plays episodes of all, as the configuration says.

        Returns:
          (result in the environment trained on, metrics, returns and lengths of the single episodes).
        """
        row: dict[str, float] = {}
        found: dict[str, Any] = {}
        played = {prefix: self.play(prefix, state, iteration) for prefix in self._plan.tasks}
        for prefix, episodes in played.items():
            result = Result.of(episodes)
            values = {"return": result.mean, "return_std": result.std, "length": result.mean_length}
            values |= report_values(self._plan.tasks[prefix].reports, episodes)
            row |= {f"{prefix}{name}": value for name, value in values.items()}
            found |= {f"{prefix}{name}": values for name, values in samples(episodes).items()}
        if self._suite:
            row |= metrics(self._suite.play(state, self._config.evaluate.sample))
        return Result.of(played["eval/"]), row, found
