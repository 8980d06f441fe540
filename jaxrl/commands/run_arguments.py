"""The arguments that define what to train: a config, changes of its fields, a folder, and processes."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence

from ml_collections import ConfigDict

from jaxrl.commands import COMMANDS, command_line, resumption
from jaxrl.commands.arguments import with_home
from jaxrl.commands.field_flags import Override, TrainingFlags, set_fields, split_overrides
from jaxrl.config import ConfigError, check_config
from jaxrl.config.declarations import algorithm_of
from jaxrl.config.environment import full_name
from jaxrl.config.files import ENDINGS, Remarks, load_config, shipped_names
from jaxrl.config.overrides import move, override
from jaxrl.config.selection import suitable_config
from jaxrl.config.text import one_line, printable
from jaxrl.parallel.processes import Processes, find
from jaxrl.reporting.logs import LEVELS
from jaxrl.runs import storage


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of a training run.

    Attributes:
      notes: lines for the user to see once it is known that the configuration can be trained.
      log_level: from which level on train.log has records.
      most_devices: see `Remarks`.
    """

    config: ConfigDict
    workdir: str
    processes: Processes
    notes: tuple[str, ...] = ()
    log_level: str = "info"
    most_devices: int = 0

    def announce(self) -> None:
        """Prints the notes on stderr."""
        for note in self.notes:
            print(printable(one_line(note), getattr(sys.stderr, "encoding", None)), file=sys.stderr)


def parse_single(command: str, left: Sequence[str]) -> Arguments:
    """`parse_training` for a command that looks at one run; ConfigError if the config is of a population."""
    arguments = parse_training(["jaxrl", *left])
    if (seeds := check_config(arguments.config).population.seeds) > 1:
        raise ConfigError(f"`population.seeds` (={seeds}): {command} looks at a single run")
    return arguments


def parse_training(argv: Sequence[str]) -> Arguments:
    """Reads what to train, in which folder, with which processes.

    `CONFIG` or `--config=CONFIG` (a file, or the name of a shipped config), `--env=SUITE:NAME`,
    `--config.SECTION.FIELD=VALUE`, `--workdir=DIR`, `--resume`, `--resume=DIR` and the flags of processes.
    Raises ConfigError if anything on the command line or in the config file is wrong.
    """
    if argv[1:] and argv[1] in COMMANDS:
        raise ConfigError(f"`{argv[1]}` is a command and no config: `jaxrl {argv[1]}`")
    argv, resumed = resumption.split(with_home(argv))
    flags, left = TrainingFlags.parse(argv, known_only=True)
    positional, overrides = split_overrides(left)
    environment, log_level = flags.env or "", flags.log_level or "info"
    if log_level not in LEVELS:
        raise ConfigError(f"`--log-level` (={log_level!r}) must be one of {', '.join(LEVELS)}")
    if flags.workdir and flags.output_dir:
        raise ConfigError(
            f"`--workdir` (={flags.workdir}) and `--output-dir` (={flags.output_dir}) both name a folder"
        )
    workdir = flags.workdir or flags.output_dir or ""
    given = [x for x in (flags.config, *positional) if x]
    if flags.quick and not given:
        raise ConfigError("`--quick` needs a config that has a short form, such as ppo_parallel")
    if flags.multi_task and not any(field == "env.tasks" for _, field, _ in overrides):
        raise ConfigError("`--multi-task` needs `--task-list`, the environments")
    if len(given) > 1:
        raise ConfigError(f"`{given[-1]}` is no flag; flags start with --, and there is one config")
    if resumed is not None and workdir:
        if resumed and os.path.abspath(resumed) != os.path.abspath(workdir):
            raise ConfigError(f"`--workdir` (={workdir}) and `--resume` both name a folder: leave one out")
        resumed, workdir = workdir, ""
    continued = next((text for _, field, text in overrides if field == "resume_from"), "")
    if resumed is not None and not (given or environment):
        resumed = resumed or resumption.latest()
        name = ""
        config = resumption.stored_config(resumed)
        remarks = Remarks([f"resuming {resumed}"])
    elif continued and not (given or environment):
        _require_folder("resume_from", continued)
        source = resumption.run_of(continued)
        name = resumption.name_of(source)
        config = resumption.stored_config(source, "--resume-from")
        remarks = Remarks([f"continuing {source}, with its configuration"])
    else:
        name, config, remarks = _config(given[0] if given else "", environment, overrides, flags.quick)
    notes = remarks.lines
    notes += set_fields(config, overrides)
    if rounded := _round_environments(config, {field for _, field, _ in overrides}):
        notes.append(rounded)
    environment, found = full_name("env.name", check_config(config).env.name)
    if found:
        notes.append(found)
        override(config, "env.name", environment)
    for field in ("init_from", "resume_from"):
        _require_folder(field, config.get(field, ""))
    processes = find(
        os.environ,
        coordinator=flags.coordinator,
        num_processes=flags.num_processes,
        process_id=flags.process_id,
        heartbeat=flags.heartbeat,
        watchdog=flags.watchdog,
        join=flags.join,
    )
    if resumed is not None:
        workdir = resumed or resumption.latest_of(name, config)
        resumption.require_run(workdir)
    most = 0 if config.num_devices else remarks.most_devices
    return Arguments(config, _workdir(workdir, name), processes, tuple(notes), log_level, most)


def _config(
    given: str, environment: str, overrides: Sequence[Override], quick: bool
) -> tuple[str, ConfigDict, Remarks]:
    """Returns the name of the config, the config, and lines on why it was chosen and what was left out."""
    remarks = Remarks()
    if environment and not given:
        environment, note = full_name("--env", environment)
        suitable = suitable_config(environment)
        reason = f"--env={environment}: {suitable.reason}; choose another with --config=NAME"
        return suitable.name, suitable.config, Remarks([*filter(None, [note]), reason])
    fields = {field: text for _, field, text in overrides}
    if not given and (given := _config_of_flags(fields)):
        remarks.lines.append(f"the config is {given}; choose another with CONFIG or --env")
    config = load_config(given, remarks, quick, environment)
    name = os.path.splitext(os.path.basename(given))[0]
    environment = fields.get("env.name", environment)
    if environment and (moved := move(config, environment, fields)):
        remarks.lines.append(f"{environment} with the config {name}: {moved}")
    return name, config, remarks


def _config_of_flags(fields: Mapping[str, str]) -> str:
    """The shipped config that flags ask for by themselves; "" if they name none."""
    if fields.get("env.tasks"):
        return "ppo_tasks"
    stages = fields.get("curriculum.file", "")
    if stages == "auto" or (not stages and "curriculum.num_stages" in fields):
        return "ppo_navigation"
    return f"ppo_{stages}" if stages in shipped_names("curricula") else ""


def _round_environments(config: ConfigDict, fields: Collection[str]) -> str:
    """Has as many environments as the tasks of a flag can share; returns a line if that changes them."""
    period = sum(config.env.task_shares) or len(config.env.tasks) or 1
    before = config.env.num_envs
    if "env.tasks" not in fields or "env.num_envs" in fields or before % period == 0:
        return ""
    multiple = math.lcm(period, math.gcd(before, 4))  # 4: for minibatches and devices
    count = max(1, round(before / multiple)) * multiple
    override(config, "env.num_envs", count)
    return f"env.num_envs is {count}, not {before}: a multiple for the {len(config.env.tasks)} tasks"


def named_algorithm(argv: Sequence[str]) -> str:
    """The algorithm that an unchecked command line names, by `--config.algorithm` or its config."""
    found = ""
    for argument, following in itertools.pairwise([*argv, ""]):
        flag, equals, text = argument.partition("=")
        name = flag.lstrip("-") if flag.startswith("-") else ""
        if name == "config.algorithm":
            return text if equals else following
        if name == "config":
            found = algorithm_of(load_config(text if equals else following))
        elif not name and (argument in shipped_names() or argument.endswith(ENDINGS)):
            found = algorithm_of(load_config(argument))
    return found


def _workdir(given: str | None, config_name: str) -> str:
    if not given:
        # A loop in a shell starts several within a second.
        name = f"{datetime.datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
        return os.path.join(resumption.RUNS, config_name, name)
    if storage.is_remote(given):
        storage.require_run_folder("--workdir", given)
    else:
        command_line.require_writable_folder("workdir", given)
    return given


def _require_folder(name: str, path: str) -> None:
    if storage.is_remote(path):
        storage.require_folder(name, path)
    elif path and not os.path.isdir(os.path.expanduser(path)):
        steps = resumption.stored_steps(os.path.dirname(os.path.expanduser(path)))
        there = f"; available steps: {', '.join(steps)}" if steps else ""
        raise ConfigError(f"`{name}` (={path!r}) must be a folder{there}")
