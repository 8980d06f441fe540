"""`jaxrl evaluate --suite=FILE`: plays a suite and writes the report."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxrl.algorithms import Agent
from jaxrl.config import versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.sections import SAMPLED
from jaxrl.envs.host_env import HostEnvError
from jaxrl.envs.pictures import CannotRender
from jaxrl.evaluation import evaluators, trained_policy
from jaxrl.evaluation.evaluator import Evaluator
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.evaluation.modes import mode_name, modes_of
from jaxrl.evaluation.suites import definition
from jaxrl.evaluation.suites.definition import Suite
from jaxrl.evaluation.suites.levels import PlayableLevel, SuiteLevels, SuitePlayer
from jaxrl.evaluation.suites.summary import episode_rows, summarize
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class SuiteQuestion:
    """The suite to play, and replacements of its values.

    Attributes:
      checkpoint: "best", "latest" or a step.
      episodes: how many for each level and mode; None: the suite's number.
      sample: only sampled actions, or only the most likely ones; None: in the suite's modes.
      seed: of the levels and the episodes; None: the suite's.
      video: folder for a video of each level, or None.
    """

    file: str
    checkpoint: str = "best"
    episodes: int | None = None
    sample: bool | None = None
    seed: int | None = None
    video: str | None = None

    def applied_to(self, suite: Suite, agent: Agent) -> Suite:
        """The suite with these values, in the modes that an agent has."""
        return dataclasses.replace(
            suite,
            modes=modes_of(agent, suite.modes if self.sample is None else (mode_name(self.sample),)),
            seed=suite.seed if self.seed is None else self.seed,
            categories={
                name: tuple(dataclasses.replace(x, episodes=self.episodes or x.episodes) for x in category)
                for name, category in suite.categories.items()
            },
        )


def run(
    workdir: str,
    asked: SuiteQuestion,
    show: Callable[[Mapping[str, Any]], None],
    say: Callable[[str], object],
    trust: bool = False,
) -> None:
    """Plays the suite.

    Args:
      asked: the suite, and replacements of its values.
      show: is given the report, before it is written.
      say: is called with a line on each file written.
      trust: import the modules that the run's configuration names.

    Raises:
      ConfigError: the suite, a level that the policy cannot play, or nothing to sample.
      RunError: an environment failed.
    """
    suite = definition.read(asked.file)
    policy = trained_policy.load(workdir, asked.checkpoint, trust=trust)
    levels = SuiteLevels.of(asked.applied_to(suite, policy.agent), policy.spec, policy.config.env)
    with errors_as(RunError, "", HostEnvError):
        say(f"checkpoint  {policy.checkpoint}")
        report = _report(policy, levels)
        show(report)
        name = f"suite-{suite.name}-step-{policy.step}"
        videos = _videos(policy, levels, asked.video) if asked.video else ()
        for line in itertools.chain(RunFolder(policy.folder).record_evaluation(name, report), videos):
            say(line)


def _report(policy: TrainedPolicy, levels: SuiteLevels) -> dict[str, Any]:
    suite = levels.suite
    modes: dict[str, Any] = {}
    player = SuitePlayer(levels, functools.cache(functools.partial(_evaluator, policy)))
    for mode, played in player.play(policy.state, suite.modes).items():
        categories: dict[str, Any] = {}
        for name, found in played.items():
            rows = [
                {
                    **_describe(level),
                    **dataclasses.asdict(summarize([outcomes])),
                    "episode_rows": episode_rows(outcomes),
                }
                for level, outcomes in zip(levels.categories[name], found, strict=True)
            ]
            categories[name] = {**dataclasses.asdict(summarize(found)), "levels": rows}
        everything = [outcomes for found in played.values() for outcomes in found]
        modes[mode] = {"all": dataclasses.asdict(summarize(everything)), "categories": categories}
    return {
        "suite": suite.name,
        "step": policy.step,
        "mode": policy.mode,
        "seed": suite.seed,
        "device": policy.topology.description,
        "versions": versions(),
        "commits": commits(),
        **origin(),
        "modes": modes,
    }


def _evaluator(policy: TrainedPolicy, task: EvaluationTask) -> Evaluator:
    return evaluators.build(policy.config, task, policy.agent, policy.topology)


def _describe(playable: PlayableLevel) -> dict[str, Any]:
    level = playable.level
    return {
        "env": level.env,
        "wrappers": list(playable.task.wrappers),
        **({"tasks": level.tasks} if level.tasks else {}),
        "success": rule.text if (rule := playable.task.reports.success) else None,
        "cost_key": level.cost,
    }


def _videos(policy: TrainedPolicy, levels: SuiteLevels, folder: str) -> Iterator[str]:
    """Writes a video of each level in the first mode; yields a line on each, or the reason why not."""
    from jaxrl.evaluation.suites import video

    suite = levels.suite
    for name, category in levels.categories.items():
        for i, level in enumerate(category):
            file = f"{folder}/{video.file_name(name, i, suite.modes[0])}"
            try:
                start = level.task_of(suite.seed)
                yield video.write(policy, level.task, suite.modes[0] == SAMPLED, suite.seed, file, start)
            except CannotRender as error:
                yield f"no video: {error}"
