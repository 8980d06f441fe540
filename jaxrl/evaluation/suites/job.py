"""`jaxrl evaluate --suite=FILE`: plays a suite and writes the report."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from jaxrl.config import versions
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.sections import SAMPLED
from jaxrl.envs.host_env import HostEnvError
from jaxrl.envs.pictures import CannotRender
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.evaluator import EvaluationTask, Evaluator, build
from jaxrl.evaluation.result import mode_name, modes_of
from jaxrl.evaluation.suites import definition
from jaxrl.evaluation.suites.levels import PlayableLevel, SuiteLevels, SuitePlayer
from jaxrl.evaluation.suites.summary import episode_rows, summarize
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder


def run(
    workdir: str,
    file: str,
    show: Callable[[Mapping[str, Any]], None],
    say: Callable[[str], object],
    checkpoint: str = "best",
    episodes: int | None = None,
    sample: bool | None = None,
    seed: int | None = None,
    video: str | None = None,
    trust: bool = False,
) -> None:
    """Plays the suite.

    Args:
      show: is given the report, before it is written.
      say: is called with a line on each file written.
      checkpoint: "best", "latest" or a step.
      episodes: how many for each level and mode; None: the suite's number.
      sample: only sampled actions, or only the most likely ones; None: in the suite's modes.
      seed: of the levels and the episodes; None: the suite's.
      video: folder for a video of each level, or None.
      trust: import the modules that the run's configuration names.

    Raises:
      ConfigError: the suite, a level that the policy cannot play, or nothing to sample.
      RunError: an environment failed.
    """
    suite = definition.read(file)
    policy = trained_policy.load(workdir, checkpoint, trust=trust)
    suite = replace(
        suite,
        modes=modes_of(policy.agent, suite.modes if sample is None else (mode_name(sample),)),
        seed=suite.seed if seed is None else seed,
        categories={
            name: tuple(replace(level, episodes=episodes or level.episodes) for level in category)
            for name, category in suite.categories.items()
        },
    )
    levels = SuiteLevels.of(suite, policy.spec, policy.config.env)
    with errors_as(RunError, "", HostEnvError):
        say(f"checkpoint  {policy.checkpoint}")
        report = _report(policy, levels)
        show(report)
        name = f"suite-{suite.name}-step-{policy.step}"
        videos = _videos(policy, levels, video) if video else ()
        for line in itertools.chain(RunFolder(policy.folder).record_evaluation(name, report), videos):
            say(line)


def _report(policy: TrainedPolicy, levels: SuiteLevels) -> dict[str, Any]:
    @functools.cache
    def evaluator_of(task: EvaluationTask) -> Evaluator:
        return build(policy.config, task, policy.agent, policy.topology)

    suite = levels.suite
    modes: dict[str, Any] = {}
    for mode, played in SuitePlayer(levels, evaluator_of).play(policy.state, suite.modes).items():
        categories: dict[str, Any] = {}
        for name, found in played.items():
            rows = [
                {**_describe(level), **asdict(summarize([outcomes])), "episode_rows": episode_rows(outcomes)}
                for level, outcomes in zip(levels.categories[name], found, strict=True)
            ]
            categories[name] = {**asdict(summarize(found)), "levels": rows}
        everything = [outcomes for found in played.values() for outcomes in found]
        modes[mode] = {"all": asdict(summarize(everything)), "categories": categories}
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

    seed = levels.suite.seed
    mode = levels.suite.modes[0]
    for name, category in levels.categories.items():
        for i, level in enumerate(category):
            place = re.sub("[^A-Za-z0-9]+", "-", name).strip("-")
            file = f"{folder}/{place}-{i}-{mode}.gif"
            try:
                yield video.write(policy, level.task, mode == SAMPLED, seed, file, level.task_of(seed))
            except CannotRender as error:
                yield f"no video: {error}"
