"""The flags of `jaxrl train`, and the ones among them that set fields of the configuration."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ml_collections import ConfigDict

from jaxrl.commands.arguments import Argument, CommandArguments, flag, require_no_flags
from jaxrl.config import ConfigError, words
from jaxrl.config.converted_counts import multiply_workers
from jaxrl.config.declarations import algorithm_of, declared_fields, section_of
from jaxrl.config.fields import at_least, check
from jaxrl.config.overrides import override, read_value
from jaxrl.parallel.processes import HEARTBEAT_SECONDS, JOIN_SECONDS

_LARGEST = 1_000_000
LEARNER = "learner"
ENVS_PER_WORKER = "envs_per_worker"  # no field: environments are so many times the workers


@dataclass(frozen=True)
class ShortFlag(Argument):
    """A flag that sets a field (`LEARNER` is the section) in units that are `scale` of the field's."""

    field: str = ""
    scale: float = 1


class TrainingFlags(CommandArguments):
    """The flags of `jaxrl train`; flags of fields are left to `field_flags`, `--resume` to `resumption`."""

    config_file = Argument(
        "CONFIG", "a config file (.py, .yaml, .json), or the name of a shipped one, such as ppo; or --config="
    )
    config: str | None = flag("--config=CONFIG")
    env: str | None = flag(
        "--env=SUITE:NAME", "the environment; without CONFIG the shipped config that suits its spaces"
    )
    quick: bool = flag("--quick", "the short form of a CONFIG that has one, such as ppo_parallel")
    steps = ShortFlag("--steps=N", "how long to train, in environment steps", field="stop.steps")
    minutes = ShortFlag("--minutes=M", "how long at most", field="stop.seconds", scale=60)
    duration = ShortFlag("--duration=H", "the same in hours", field="stop.seconds", scale=3600)
    num_envs = ShortFlag("--num-envs=N", "environments over all devices", field="env.num_envs")
    num_workers = ShortFlag(
        "--num-workers=N", "processes of environments on the host", field="host.num_workers"
    )
    num_envs_per_worker = ShortFlag(
        "--num-envs-per-worker=N", "environments for each of them", field=ENVS_PER_WORKER
    )
    learning_rate = ShortFlag("--learning-rate=X", "or --lr=X", field=f"{LEARNER}.learning_rate")
    lr = ShortFlag("--lr=X", field=f"{LEARNER}.learning_rate")
    seed = ShortFlag("--seed=K", "decides all random numbers", field="seed")
    curriculum = ShortFlag(
        "--curriculum=FILE",
        "stages of tasks, or the name of shipped ones; alone the environment's",
        field="curriculum.file",
    )
    stages = ShortFlag("--stages=N", "only the first stages", field="curriculum.num_stages")
    start_stage = ShortFlag(
        "--curriculum-start-level=N", "the stage to begin with", field="curriculum.start_stage"
    )
    task_list = ShortFlag("--task-list=LIST", "several environments for one policy", field="env.tasks")
    resume_from = ShortFlag("--resume-from=DIR", "continues that run in a new folder", field="resume_from")
    multi_task: bool = flag("--multi-task", "goes with --task-list, which needs no other flag")
    config_field = Argument(
        "--config.FIELD=VALUE",
        "changes a field, such as --config.ppo.learning_rate=1e-3; see below, with "
        "--config.algorithm=MODULE:CLASS also its fields",
    )
    section = Argument(
        "--help=SECTION", "the fields of a section, such as ppo, or one field; --help=all lists every field"
    )
    workdir: str | None = flag(
        "--workdir=DIR", "its folder (default: runs/CONFIG/DATE-TIME-PROCESS); an existing run resumes"
    )
    output_dir: str | None = flag("--output-dir=DIR")
    resume = Argument(
        "--resume",
        "resumes the latest run of CONFIG; without CONFIG the latest of all, with the configuration that it "
        "has",
    )
    resumed = Argument(
        "--resume=DIR", "resumes the run in DIR; without CONFIG with the configuration that it has"
    )
    print_config = Argument(
        "--print-config",
        "prints the whole configuration as a config file, and ends; --print-config=yaml and "
        "--print-config=json in these forms",
    )
    coordinator: str | None = flag(
        "--coordinator=HOST:PORT",
        "address of the first of several processes, with --num_processes=N and --process_id=I "
        "(docs/multihost.md; SLURM, Open MPI, Kubernetes and Cloud TPU provide all three)",
    )
    num_processes: int | None = flag("--num_processes=N", within=(1, _LARGEST))
    process_id: int | None = flag("--process_id=I", within=(0, _LARGEST))
    heartbeat: int = flag(
        "--heartbeat=SECONDS",
        "until a process that is not heard of counts as lost (default: {default})",
        HEARTBEAT_SECONDS,
        (1, _LARGEST),
    )
    watchdog: int | None = flag(
        "--watchdog=SECONDS",
        "without progress until a process ends itself (default: 1800; 0: never)",
        within=(0, _LARGEST),
    )
    join: int = flag(
        "--join=SECONDS",
        "to wait for the other processes at the start (default: {default})",
        JOIN_SECONDS,
        (1, _LARGEST),
    )
    log_level: str = flag(
        "--log-level=LEVEL", "of train.log: debug, info, warning or error (default: {default})", "info"
    )
    debug = flag(
        "--debug",
        "full tracebacks instead of one line for what goes wrong, and the operation that made a NaN",
    )


ARGUMENTS = TrainingFlags.arguments()
_SHORT_FLAGS = [argument for argument in ARGUMENTS if isinstance(argument, ShortFlag)]
SHORT_FLAGS = {flag.name: flag for flag in _SHORT_FLAGS}
FLAGS_OF_FIELDS = {flag.field: flag.term for flag in reversed(_SHORT_FLAGS)}
_FLAGS = {"help", *(argument.name for argument in ARGUMENTS if argument.word)}


class Override(NamedTuple):
    """A flag, the field that it sets, and the text of its value."""

    flag: str
    field: str
    text: str


def split_overrides(left: Sequence[str]) -> tuple[list[str], list[Override]]:
    """Returns what is no flag, and what `--flag=text` and `--flag text` set."""
    positional: list[str] = []
    found: list[Override] = []
    unknown: list[str] = []
    # Alone it is the environment's own curriculum.
    arguments = iter(
        "--curriculum=auto" if argument == "--curriculum" and after.startswith("--") else argument
        for argument, after in itertools.pairwise([*left, "--"])
    )
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        name = flag.lstrip("-")
        if not flag.startswith("-"):
            positional.append(argument)
            continue
        if not is_of_config(name):
            if name == "print-config":
                raise ConfigError(f"`{flag}` (={text!r}) must be yaml or json, or have no value for Python")
            if name in _FLAGS and equals:
                raise ConfigError(f"`{flag}` takes no value, not `{argument}`")
            unknown.append(flag)
            continue
        if not equals:
            text = next(arguments, "--")
            if text.startswith("--"):
                raise ConfigError(f"`{flag}` needs a value: {flag}=VALUE")
        found.append(_override_of(flag, name, text))
    if "--env-id" in {flag.replace("_", "-") for flag in unknown}:
        raise ConfigError(_of_cleanrl(left))
    require_no_flags(unknown, _FLAGS, declared_fields(), FLAGS_OF_FIELDS)
    return positional, found


def _of_cleanrl(left: Sequence[str]) -> str:
    """The error about a command line of CleanRL, with ours."""
    ours: list[str] = []
    others: list[str] = []
    for argument, after in itertools.pairwise([*left, "--"]):
        if not argument.startswith("--"):
            continue
        flag, equals, text = argument.partition("=")
        text = text if equals else "" if after.startswith("--") else after
        field = words.field_of(flag.lstrip("-"))
        short = FLAGS_OF_FIELDS.get(field, "").partition("=")[0]
        if field == "env.name":
            ours.append(f"--env={text}")
        elif flag.lstrip("-").replace("_", "-") in SHORT_FLAGS:
            ours.append(f"{flag}={text}")
        elif field and text:
            ours.append(f"{short or f'--config.{field}'}={text}")
        else:
            others.append(flag)
    line = shlex.join(["jaxrl", "train", *ours])
    left_out = f"; see docs/coming_from.md for {', '.join(others)}" if others else ""
    return f"this is a command line of CleanRL, which reads here `{line}`{left_out}"


def is_of_config(name: str) -> bool:
    """True if the flag `name` sets a field: `config.seed`, or `seed`."""
    return name.startswith("config.") or name.replace("_", "-") in SHORT_FLAGS


def _override_of(flag: str, name: str, text: str) -> Override:
    """The field that a flag sets, and its text; the value of a short flag is scaled to the field's unit."""
    short = SHORT_FLAGS.get(name.replace("_", "-"))
    if short is None:
        return Override(flag, name.removeprefix("config."), text)
    if short.scale == 1:
        return Override(flag, short.field, text)
    try:
        return Override(flag, short.field, repr(short.scale * float(text)))
    except ValueError as error:
        raise ConfigError(f"`{flag}` (={text!r}) must be a number") from error


def set_fields(config: ConfigDict, overrides: Sequence[Override]) -> list[str]:
    """Sets fields, each by one kind of flag: `--steps` and `--config.stop.steps` together are refused.

    Returns lines on the value that a flag gave.
    """
    flags: dict[str, str] = {}
    of_workers = [given for given in overrides if given.field == ENVS_PER_WORKER]
    overrides = [given for given in overrides if given.field != ENVS_PER_WORKER]
    # First the algorithm, whose class declares the fields.
    for word, field, text in sorted(overrides, key=lambda given: given.field != "algorithm"):
        if field.startswith(f"{LEARNER}."):
            field = section_of(algorithm_of(config)).name + field.removeprefix(LEARNER)
        if flags.setdefault(field, word) != word:
            raise ConfigError(f"`{flags[field]}` and `{word}` both set `{field}`: leave one out")
        override(config, field, text)
    curriculum = config.curriculum
    if "curriculum.num_stages" in flags and not (
        curriculum.file or curriculum.stages or curriculum.difficulties
    ):
        override(config, "curriculum.file", "auto")  # a number of stages needs some
    if not of_workers:
        return []
    word, _, text = of_workers[-1]
    if "env.num_envs" in flags:
        raise ConfigError(f"`{flags['env.num_envs']}` and `{word}` both set `env.num_envs`: leave one out")
    count = multiply_workers(config, check(word, read_value(text, int), int, at_least(1)))
    return [f"{word}={text} of {max(1, config.host.num_workers)} workers: {count} environments"]
