"""jaxrl evaluate RUN: plays whole episodes, or a suite of environments.

Every environment plays a fixed share of the episodes, from a fresh reset; the
normaliser is frozen. Prints the result and writes it to RUN/evaluations/.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import CHECKPOINT, SEED, TRUST, RunFlags, flag, sample_choice
from jaxrl.config import ConfigError, task_environment, versions
from jaxrl.config.environment import full_name
from jaxrl.config.errors import RunError, errors_as
from jaxrl.config.text import counted
from jaxrl.runs.commits import commits, origin

if TYPE_CHECKING:
    from jaxrl.evaluation.result import Result
    from jaxrl.evaluation.trained_policy import TrainedPolicy

_EPISODES_OF_LEVEL = 10
_MOST_FILMED = 100  # their pictures lie in memory


class _Flags(RunFlags):
    episodes: int | None = flag(
        "--episodes=N",
        "exact number of episodes in each mode (default: 100); 0 with --video makes only the video",
        within=(0, command_line.MOST_EPISODES),
    )
    checkpoint: str = CHECKPOINT
    sample: bool = flag("--sample", "only sampled actions")
    greedy: bool = flag(
        "--greedy",
        "only the most likely actions (default: both modes for episodes; for --levels, videos and pages the "
        "mode that was better in the evaluations during training)",
    )
    seed: int | None = replace(SEED, help="decides the episodes (default: 0)", default=None)
    environment: str = flag(
        "--environment=E",
        "play another one, such as levels that training never shows, or one of the run's tasks (default: the "
        "run's)",
        "",
    )
    suite: str | None = flag(
        "--suite=FILE",
        "play the categories of environments in FILE (docs/evaluation.md), or in a shipped "
        "suite: cartpole, navigation, platformer",
    )
    levels: int | None = flag(
        "--levels=N",
        "instead of episodes of the default task, a few (--episodes, default 10) in each of N random levels "
        "that can be solved, and in those with names (docs/levels.md)",
        within=(1, command_line.MOST_EPISODES),
    )
    cvar: bool = flag(
        "--cvar",
        "with --levels: also the solve rate in the worst of them, chosen by one seed of rollouts and scored "
        "by another, with a plot",
    )
    video: str | None = flag(
        "--video=FILE",
        "a video of one episode, FILE.gif or FILE.mp4; with --suite a folder with a video of each level",
    )
    video_episodes: int = flag(
        "--video-episodes=N",
        "episodes in the video, one after the other (default: {default})",
        1,
        within=(1, _MOST_FILMED),
    )
    inspect: str | None = flag(
        "--inspect=FILE",
        "one episode as a page, FILE.html, to step through: pictures beside probabilities of actions, value, "
        "reward and carry",
    )
    trust: bool = TRUST


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    workdir = flags.folder(left)
    _check(flags)

    from jaxrl.evaluation import trained_policy
    from jaxrl.parallel import cpu_devices

    cpu_devices.offer_cpu_devices(cpu_devices.available_cores())
    if flags.video:
        _check_video(flags.video, bool(flags.suite))
    sample = sample_choice(flags.sample, flags.greedy)
    if flags.suite:
        from jaxrl.evaluation.suites import job

        given = {name: getattr(flags, name) for name in ("checkpoint", "episodes", "seed", "video", "trust")}
        job.run(workdir, flags.suite, _show_suite, command_line.say, sample=sample, **given)
        return 0
    trained = trained_policy.load(workdir, flags.checkpoint, trust=flags.trust)
    asked: dict[str, Any] = {
        "episodes": 100 if flags.episodes is None else flags.episodes,
        "seed": flags.seed or 0,
        "environment": _full_name(flags.environment, trained),
    }
    if trained.folder != workdir:
        command_line.say(f"best member {trained.folder}")
    print(f"checkpoint  {trained.checkpoint}")
    draws = trained.draws(sample)
    if flags.levels:
        from jaxrl.evaluation import levels

        played = asked | {"episodes": flags.episodes or _EPISODES_OF_LEVEL}
        levels.run(trained, flags.levels, sample=draws, cvar=flags.cvar, **played)
    elif asked["episodes"]:
        _play(trained, asked, sample)
    environment = asked["environment"] or trained.config.env.name
    for line in _show_episodes(trained, flags, environment, draws, asked["seed"]):
        command_line.say(line)
    return 0


def _check(flags: _Flags) -> None:
    """Raises ConfigError for flags that exclude each other, or a page that cannot be written."""
    suite, video = flags.suite, flags.video
    text = ""
    if flags.environment and suite:
        text = "`--environment` and `--suite` exclude each other: list the environment in the suite"
    elif flags.levels and (suite or video):
        text = "`--levels` excludes `--suite` and `--video`"
    elif flags.video_episodes > 1 and (suite or not video):
        text = "`--video-episodes` is about one video: it needs `--video`, without `--suite`"
    elif flags.cvar and not flags.levels:
        text = "`--cvar` is about the worst of many levels: it needs `--levels`"
    elif flags.episodes == 0 and (suite or not (video or flags.inspect)):
        of = "a video of one environment (--video, --inspect)"
        text = f"`--episodes` (=0) must be at least 1, except for {of}"
    elif (page := flags.inspect) and (suite or not page.endswith(".html") or os.path.isdir(page)):
        text = f"`--inspect` (={page!r}) must be a file that ends in .html, without --suite"
    if text:
        raise ConfigError(text)
    if flags.inspect:
        command_line.require_writable_folder("inspect", os.path.dirname(flags.inspect) or ".")


def _full_name(environment: str, trained: TrainedPolicy) -> str:
    """The name with its suite, printed if it had to be found; the run's own if it is one of several tasks."""
    if not environment:
        return ""
    environment = task_environment(environment, trained.config.env, trained.spec.task_names)
    environment, found = full_name("--environment", environment)
    if found:
        command_line.say(found)
    return environment


def _play(trained: TrainedPolicy, asked: Mapping[str, Any], sample: bool | None) -> None:
    """Plays, shows and records the requested episodes, each mode in a record of its own."""
    from jaxrl.evaluation import trained_policy
    from jaxrl.evaluation.result import MODES, mode_name, modes_of, report_lines

    modes = modes_of(trained.agent, MODES if sample is None else (mode_name(sample),))
    found = trained_policy.evaluate(trained, modes=modes, **asked)
    for result, reported in found.values():
        print(f"episodes    {result.episodes}, {result.mode}")
        print(f"return      {result.mean:.2f}  95% confidence [{result.low:.2f}, {result.high:.2f}]")
        print(f"            std {result.std:.2f}, from {result.minimum:.2f} to {result.maximum:.2f}")
        print(f"length      {result.mean_length:.1f} steps, std {result.std_length:.1f}")
        for line in report_lines(reported):
            command_line.say(line)
        if result.cut:
            print(f"cut off     {result.cut}")
    if len(found) > 1 and trained.step:
        print(f"decides     {trained.mode}, in the evaluations during training")
    # A pipeline keeps the last one named.
    for result, reported in sorted(found.values(), key=lambda each: each[0].mode == trained.mode):
        _record(trained, asked, result, reported)


def _record(
    trained: TrainedPolicy, asked: Mapping[str, Any], result: Result, reported: Mapping[str, float]
) -> None:
    from jaxrl.runs.folder import RunFolder

    asked_for = {"step": trained.step, "seed": asked["seed"]}
    name = f"step-{trained.step}-{result.mode}-{result.episodes}-seed-{asked['seed']}"
    if asked["environment"]:
        asked_for["environment"] = asked["environment"]
        name += "-" + re.sub(r"[^\w.-]+", "_", asked["environment"]).strip("_")
    made_with = {"versions": versions(), "commits": commits(), **origin()}
    record = asked_for | dataclasses.asdict(result) | dict(reported) | made_with
    for line in RunFolder(trained.folder).record_evaluation(name, record):
        command_line.say(line)


def _check_video(given: str, is_folder: bool) -> None:
    """Raises ConfigError if no video can be written there, before anything is played."""
    from jaxrl.evaluation.suites import video

    if not is_folder and (not given.endswith(video.ENDINGS) or os.path.isdir(given)):
        text = "must be a file that ends in .gif or .mp4; it is a folder with --suite"
        raise ConfigError(f"`--video` (={given!r}) {text}")
    command_line.require_writable_folder("video", given if is_folder else os.path.dirname(given) or ".")
    video.require_packages(".gif" if is_folder else os.path.splitext(given)[1])


def _show_episodes(
    trained: TrainedPolicy, flags: _Flags, environment: str, sample: bool, seed: int
) -> Iterator[str]:
    """Writes the video and the page that flags ask for; yields a line about each."""
    from jaxrl.envs.host_env import HostEnvError
    from jaxrl.envs.pictures import CannotRender
    from jaxrl.evaluation import inspection
    from jaxrl.evaluation.evaluator import EvaluationTask
    from jaxrl.evaluation.suites import video
    from jaxrl.reporting.pages.page import episode_page

    played = (trained, EvaluationTask(environment, trained.config.env.wrappers), sample, seed)
    if file := flags.video:
        said = f"`--video` (={file!r}): no video was written"
        with errors_as(ConfigError, said, CannotRender), errors_as(RunError, "", HostEnvError):
            yield video.write(*played, file, episodes=flags.video_episodes)
    if file := flags.inspect:
        said = f"`--inspect` (={file!r}): the episode cannot be stepped through"
        with errors_as(ConfigError, said, CannotRender), errors_as(RunError, "", HostEnvError):
            yield inspection.write(*played, file, episode_page)


_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "episodes": lambda row: f"{row['episodes']:,}",
    "success": lambda row: _number(row["success_rate"], "{:.1%}"),
    "95% interval": lambda row: (
        "-" if row["success_low"] is None else f"{row['success_low']:.1%} - {row['success_high']:.1%}"
    ),
    "return": lambda row: f"{row['return_mean']:.1f} ± {row['return_std']:.1f}",
    "steps": lambda row: f"{row['length']:.1f}",
    "to success": lambda row: _number(row["steps_to_completion"], "{:.1f}"),
    "efficiency": lambda row: _number(row["efficiency"], "{:.2f}"),
    "cost": lambda row: _number(row["cost"], "{:.2f}"),
    "safety": lambda row: _number(row["safety"], "{:.1%}"),
}


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _show_suite(report: Mapping[str, Any]) -> None:
    from rich.text import Text

    from jaxrl.reporting.display import table

    print(f"suite {report['suite']}")
    rows = []
    for mode, found in report["modes"].items():
        for i, (name, row) in enumerate({**found["categories"], "all": found["all"]}.items()):
            first = mode if i == 0 else ""
            cells = (first, name, *(cell(row) for cell in _COLUMNS.values()))
            rows.append([Text(cell, style="bold" if name == "all" else "") for cell in cells])
    table.show(("actions", "category", *_COLUMNS), rows, names=2)
    unfinished = sum(found["all"]["unfinished"] for found in report["modes"].values())
    if unfinished:
        print(f"{counted(unfinished, 'episode')} cut off: the environment has no time limit")
