"""jaxrl evaluate --workdir=DIR: plays whole episodes, or a suite of environments.

  --workdir=DIR    folder of the run
  --episodes=N     how many episodes to play, exactly (default: 100)
  --checkpoint=S   which checkpoint: latest (default), best, or a step
  --sample         sample actions instead of taking the most likely ones
  --seed=K         decides the episodes (default: 0)
  --environment=E  play another one, such as levels that training never shows
                   (default: the run's)
  --suite=FILE     play the categories of environments that FILE lists
                   (docs/evaluation.md), or those of a shipped suite: cartpole,
                   navigation, platformer
  --video=FILE     a film of one episode, FILE.gif; with --suite a folder for a
                   film of each level
  --trust          import the modules that the run's configuration names
                   (module:Class): they can run any code, so only for runs of
                   your own or of people you trust
  --debug          full tracebacks instead of one line for bad input

Every environment plays a fixed share of the episodes, from a fresh reset; the
normaliser is frozen. Prints the result and writes it to DIR/evaluations/.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError, versions
from jaxrl.config.errors import RunError
from jaxrl.runs import storage

if TYPE_CHECKING:
    from jaxrl.evaluation.result import Result
    from jaxrl.evaluation.trained_policy import TrainedPolicy


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the evaluation that `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Folder of the run.", flag_values=values)
    flags.DEFINE_integer(
        "episodes", None, "Episodes to play.", 1, command_line.MOST_EPISODES, flag_values=values
    )
    flags.DEFINE_string("checkpoint", "latest", "latest, best or a step.", flag_values=values)
    flags.DEFINE_bool("sample", False, "Sample actions.", flag_values=values)
    flags.DEFINE_integer(
        "seed", None, "Decides the episodes.", 0, command_line.LARGEST_SEED, flag_values=values
    )
    flags.DEFINE_string("environment", "", "Another environment.", flag_values=values)
    flags.DEFINE_string("suite", None, "File of a suite.", flag_values=values)
    flags.DEFINE_string("video", None, "Folder of films.", flag_values=values)
    flags.DEFINE_bool("trust", False, "Import modules that the run names.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    command_line.parse_flags(values, argv)
    workdir = values["workdir"].value
    if not workdir:
        raise ConfigError("`--workdir` is missing: name the folder of a run")
    storage.require_run_folder("--workdir", workdir)
    if values["environment"].value and values["suite"].value:
        raise ConfigError(
            "`--environment` and `--suite` exclude each other: list the environment in the suite"
        )

    from jaxrl.evaluation import trained_policy
    from jaxrl.parallel import cpu_devices
    from jaxrl.runs.folder import RunFolder

    cpu_devices.offer_cpu_devices(cpu_devices.available_cores())
    if values["video"].value:
        _check_video(str(values["video"].value), bool(values["suite"].value))
    if values["suite"].value:
        return _suite(values)
    defaults = {"episodes": 100, "sample": False, "seed": 0, "environment": ""}
    asked: dict[str, Any] = {
        name: default if values[name].value is None else values[name].value
        for name, default in defaults.items()
    }
    trust = bool(values["trust"].value)
    trained = trained_policy.load(workdir, str(values["checkpoint"].value), trust=trust)
    result, reported = trained_policy.evaluate(trained, **asked)
    if trained.folder != workdir:
        print(f"best member {trained.folder}")
    _show(trained.step, result, reported)
    mode = "sample" if asked["sample"] else "greedy"
    asked_for = {"step": trained.step, "mode": mode, "seed": asked["seed"]}
    name = f"step-{trained.step}-{mode}-{result.episodes}-seed-{asked['seed']}"
    if asked["environment"]:
        asked_for["environment"] = asked["environment"]
        name += "-" + re.sub(r"[^\w.-]+", "_", asked["environment"]).strip("_")
    record = asked_for | dataclasses.asdict(result) | reported | {"versions": versions()}
    file = RunFolder(trained.folder).write_evaluation(name, record)
    print(f"written to {file}", flush=True)
    if values["video"].value:
        environment = asked["environment"] or trained.config.env.name
        print(_film(trained, environment, asked["sample"], asked["seed"], str(values["video"].value)))
    return 0


def _check_video(given: str, is_folder: bool) -> None:
    """Raises ConfigError where no film can be written there, before anything is played."""
    from jaxrl.evaluation.suites import video

    if not is_folder and (not given.endswith(".gif") or os.path.isdir(given)):
        text = "must be a file that ends in .gif; it is a folder with --suite"
        raise ConfigError(f"`--video` (={given!r}) {text}")
    command_line.require_writable_folder("video", given if is_folder else os.path.dirname(given) or ".")
    video.require_packages()


def _film(trained: TrainedPolicy, environment: str, sample: bool, seed: int, file: str) -> str:
    """Films an episode; returns a line that says so."""
    from envs.base import HostEnvError
    from envs.pictures import CannotRender
    from jaxrl.evaluation.evaluators import EvaluationTask
    from jaxrl.evaluation.suites import video

    task = EvaluationTask(environment, trained.config.env.wrappers)
    try:
        return video.write(trained, task, sample, seed, file)
    except CannotRender as error:
        raise ConfigError(f"`--video` (={file!r}): no film was written: {error}") from error
    except HostEnvError as error:
        raise RunError(str(error)) from error


def _suite(values: flags.FlagValues) -> int:
    from jaxrl.evaluation.suites import job

    named = ("checkpoint", "episodes", "sample", "seed", "video", "trust")
    options: dict[str, Any] = {name: values[name].value for name in named}
    return job.run(str(values["workdir"].value), str(values["suite"].value), **options)


def _show(step: int, result: Result, reported: Mapping[str, float]) -> None:
    from jaxrl.rollout.statistics import SUCCESS

    print(f"checkpoint  step {step:,}")
    print(f"episodes    {result.episodes}")
    print(f"return      {result.mean:.2f}  95% confidence [{result.low:.2f}, {result.high:.2f}]")
    print(f"            std {result.std:.2f}, from {result.minimum:.2f} to {result.maximum:.2f}")
    print(f"length      {result.mean_length:.1f} steps, std {result.std_length:.1f}")
    if SUCCESS in reported:
        print(f"success     {reported[SUCCESS]:.1%} of the episodes")
    for name, value in reported.items():
        if name != SUCCESS:
            print(f"{name:<11} {value:.4g}")
    if result.unfinished:
        print(f"unfinished  {result.unfinished} episodes were cut off: the environment has no time limit")
