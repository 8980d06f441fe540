"""The command line: flags, exit codes, and one line on stderr for bad input.

Nothing here imports jax: a typing mistake is answered in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import datetime
import errno
import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from jaxrl.commands import resumption
from jaxrl.commands.arguments import parse
from jaxrl.commands.training_arguments import (
    ARGUMENTS,
    FLAGS_OF_FIELDS,
    LEARNER,
    LOG_LEVEL,
    MULTI_TASK,
    OUTPUT_DIR,
    SHORT_FLAGS,
)
from jaxrl.config import ConfigError, check_config, installation, words
from jaxrl.config.algorithms import algorithm_of, section_of
from jaxrl.config.built_in import DEFAULT
from jaxrl.config.common_names import full_name
from jaxrl.config.declarations import declared_fields
from jaxrl.config.errors import RunError, did_you_mean
from jaxrl.config.files import load_config
from jaxrl.config.local_files import discard
from jaxrl.config.overrides import override
from jaxrl.config.own_environment import move
from jaxrl.config.selection import suitable_config
from jaxrl.config.text import one_line, printable
from jaxrl.parallel.process_exit import before_leaving, leave, must_leave
from jaxrl.parallel.processes import Processes, find
from jaxrl.reporting.display import terminal
from jaxrl.reporting.logs import LEVELS
from jaxrl.runs import storage

FAILED, BAD_INPUT = 1, 2  # exit codes
_UNUSABLE_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)  # of files: whatever asks for one is given such an error
# What flags of several commands may say at most.
LONGEST = 86_400.0  # seconds
LARGEST_BATCH, MOST_EPISODES, LARGEST_SEED = 2**20, 2**24, 2**32 - 1
_FLAGS = {"help", *(argument.name for argument in ARGUMENTS if argument.word)}


class _Override(NamedTuple):
    """A flag, the field that it sets, and the text of its value."""

    flag: str
    field: str
    text: str


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The arguments of a training run.

    Attributes:
      notes: lines for the user to see once it is known that the configuration can be trained.
      log_level: from which level on train.log has records.
    """

    config: ConfigDict
    workdir: str
    processes: Processes
    notes: tuple[str, ...] = ()
    log_level: str = "info"

    def announce(self) -> None:
        """Prints the notes on stderr."""
        for note in self.notes:
            print(printable(one_line(note), getattr(sys.stderr, "encoding", None)), file=sys.stderr)


def exit_code(job: Callable[[], int], debug: bool) -> int:
    """Runs a job and returns its exit code; an error becomes one line on stderr, with `debug` a traceback.

    Bad input is 2, a run that cannot continue 1 (75 if it lost a process), a signal 128 + its number. Ends
    the process itself where what was given up, such as a save, would hold it back.
    """
    before_leaving(terminal.restore_before_exit)
    code = _exit_code(job, debug)
    if reason := _broken_output():
        print(f"error: standard output cannot be written: {reason}", file=sys.stderr)
        code = code or FAILED
    if must_leave():
        leave(code)
    return code


def complain(message: object) -> None:
    """Prints `error: MESSAGE` as one line on stderr, printable and not too long."""
    line = one_line(message)
    print("error:", printable(line, getattr(sys.stderr, "encoding", None)), file=sys.stderr)


def say(line: str) -> None:
    """Prints a line in which names may stand that come from anyone."""
    print(printable(line, output_encoding()), flush=True)


def output_encoding() -> str | None:
    """That of standard output; None where it is closed."""
    return None if sys.stdout is None else sys.stdout.encoding


def _broken_output(text: str = "") -> str | None:
    """Writes and flushes; returns why standard output loses it, "" where its reader has gone, or None."""
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return None


def _exit_code(job: Callable[[], int], debug: bool) -> int:
    try:
        return job()
    except (ConfigError, RunError) as error:
        if debug:
            traceback.print_exc()
        else:
            complain(error)
        code = BAD_INPUT if isinstance(error, ConfigError) else error.exit_code
        _leave_others(code)
        return code
    except KeyboardInterrupt:
        leave(128 + signal.SIGINT)
    except Exception as error:
        if not debug and isinstance(error, OSError) and error.errno in _UNUSABLE_NAMES:
            complain(f"{error.filename}: {error.strerror}")
            _leave_others(BAD_INPUT)
            return BAD_INPUT
        if not debug and (missing := installation.missing_platform(error)):
            complain(missing)
            _leave_others(BAD_INPUT)
            return BAD_INPUT
        if isinstance(error, OSError) and (reason := _broken_output("\n")) is not None:
            if reason:
                print(f"error: standard output cannot be written: {reason}", file=sys.stderr)
            _leave_others(FAILED)
            return FAILED if reason else 0
        storage_failed = storage.is_failure(error) and not debug
        if not storage_failed and not _has_others():
            raise
        if storage_failed:
            complain(f"the storage failed: {storage.reason(error)}")
        else:
            traceback.print_exc()
        _leave_others(FAILED)
        return FAILED


def _leave_others(code: int) -> None:
    """Ends this process where it is one of several: the usual way out waits for the others."""
    if _has_others():
        leave(code)


def _has_others() -> bool:
    if "jax" not in sys.modules:
        return False  # Bad input was found before.
    from jaxrl.parallel import process_group

    return process_group.has_joined()


def run_job(usage: str | None, job: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Runs a command other than `train`; returns the exit code, as `exit_code` has it.

    Args:
      usage: what `--help` prints.
      job: takes the program's name and its arguments.
      argv: the program's name and its arguments; None takes the process's.
    """
    argv = list(sys.argv if argv is None else argv)
    if {"--help", "-h", "-help"} & set(argv):
        show(str(usage))
        return 0
    return exit_code(lambda: job(argv), "--debug" in argv)


def show(text: str) -> None:
    """Prints long text; a reader such as `head` may close the pipe early."""
    if reason := _broken_output(f"{text}\n"):
        print(f"error: standard output cannot be written: {reason}", file=sys.stderr)
        raise SystemExit(FAILED)


def parse_training(argv: Sequence[str]) -> Arguments:
    """Reads what to train, in which folder, with which processes.

    `CONFIG` or `--config=CONFIG` (a file, or the name of a shipped config), `--env=SUITE:NAME`,
    `--config.SECTION.FIELD=VALUE`, `--workdir=DIR`, `--resume`, `--resume=DIR` and the flags of processes.

    Raises:
      ConfigError: anything on the command line or in the config file is wrong.
    """
    argv, resumed = resumption.split(argv)
    values, left = parse(ARGUMENTS, argv, known_only=True)
    positional, overrides = _split_overrides(left)
    named, environment, workdir, output = (
        values.pop(name) or "" for name in ("config", "env", "workdir", OUTPUT_DIR)
    )
    if (log_level := values.pop(LOG_LEVEL) or "info") not in LEVELS:
        raise ConfigError(f"`--{LOG_LEVEL}` (={log_level!r}) must be one of {', '.join(LEVELS)}")
    if workdir and output:
        raise ConfigError(f"`--workdir` (={workdir}) and `--{OUTPUT_DIR}` (={output}) both say a folder")
    workdir = workdir or output
    given, quick = [x for x in (named, *positional) if x], values.pop("quick")
    if quick and not given:
        raise ConfigError("`--quick` needs a config that has a short form, such as ppo_parallel")
    if values.pop(MULTI_TASK) and not any(field == "env.tasks" for _, field, _ in overrides):
        raise ConfigError("`--multi-task` needs `--task-list`, the environments")
    if len(given) > 1:
        raise ConfigError(f"`{given[-1]}` is no flag; flags start with --, and there is one config")
    if resumed is not None and workdir:
        raise ConfigError(f"`--workdir` (={workdir}) and `--resume` both say a folder: leave one out")
    if resumed is not None and not (given or environment):
        resumed = resumed or resumption.latest()
        name, config, notes = "", resumption.stored_config(resumed), [f"resuming {resumed}"]
    else:
        name, config, notes = _config(given[0] if given else "", environment, overrides, quick)
    _set_fields(config, overrides)
    environment, found = full_name("env.name", check_config(config).env.name)
    if found:
        notes.append(found)
        override(config, "env.name", environment)
    for field in ("init_from", "resume_from"):
        _require_folder(field, config.get(field, ""))
    processes = find(os.environ, **values)
    if resumed is not None:
        workdir = resumed or resumption.latest_of(name, config)
        resumption.require_run(workdir)
    return Arguments(config, _workdir(workdir, name), processes, tuple(notes), log_level)


def _config(
    given: str, environment: str, overrides: Sequence[_Override], quick: bool
) -> tuple[str, ConfigDict, list[str]]:
    """Returns the name of the config, the config, and lines on why it was chosen and what was left out."""
    notes: list[str] = []
    if environment and not given:
        environment, note = full_name("--env", environment)
        suitable = suitable_config(environment)
        reason = f"--env={environment}: {suitable.reason}; choose another with --config=NAME"
        return suitable.name, suitable.config, [*filter(None, [note]), reason]
    config = load_config(given, notes, quick)
    name = os.path.splitext(os.path.basename(given))[0]
    fields = {field: text for _, field, text in overrides}
    environment = fields.get("env.name", environment)
    if environment and (moved := move(config, environment, fields)):
        notes.append(f"{environment} with the config {name}: {moved}")
    return name, config, notes


def _split_overrides(left: Sequence[str]) -> tuple[list[str], list[_Override]]:
    """Returns what is no flag, and what `--flag=text` and `--flag text` set."""
    positional: list[str] = []
    found: list[_Override] = []
    # Alone it is the environment's own curriculum.
    following = [*left[1:], "--"]
    arguments = iter(
        "--curriculum=auto" if argument == "--curriculum" and after.startswith("--") else argument
        for argument, after in zip(left, following, strict=False)
    )
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        name = flag.lstrip("-")
        if not flag.startswith("-"):
            positional.append(argument)
            continue
        if not is_of_config(name):
            if name in _FLAGS and equals:
                raise ConfigError(f"`{flag}` takes no value, so `{argument}` says nothing")
            hint = words.flag_hint(name, declared_fields(), FLAGS_OF_FIELDS)
            hint = hint or did_you_mean(name, _FLAGS, prefix="--")
            raise ConfigError(f"unknown flag `{flag}`{hint}")
        if not equals:
            text = next(arguments, "--")
            if text.startswith("--"):
                raise ConfigError(f"`{flag}` needs a value: {flag}=VALUE")
        found.append(_override_of(flag, name, text))
    return positional, found


def is_of_config(name: str) -> bool:
    """True if the flag `name` sets a field: `config.seed`, or `seed`."""
    return name.startswith("config.") or name.replace("_", "-") in SHORT_FLAGS


def _override_of(flag: str, name: str, text: str) -> _Override:
    """The field that a flag sets, and its text; those of a short flag are scaled to the field's unit."""
    short = SHORT_FLAGS.get(name.replace("_", "-"))
    if short is None:
        return _Override(flag, name.removeprefix("config."), text)
    if short.scale == 1:
        return _Override(flag, short.field, text)
    try:
        return _Override(flag, short.field, repr(short.scale * float(text)))
    except ValueError as error:
        raise ConfigError(f"`{flag}` (={text!r}) must be a number") from error


def _set_fields(config: ConfigDict, overrides: Sequence[_Override]) -> None:
    """Sets fields, each by one kind of flag: `--steps` and `--config.stop.steps` together are refused."""
    flags: dict[str, str] = {}
    # First the algorithm, whose class says which fields there are.
    for flag, field, text in sorted(overrides, key=lambda given: given.field != "algorithm"):
        if field.startswith(f"{LEARNER}."):
            field = section_of(algorithm_of(config)).name + field.removeprefix(LEARNER)
        if flags.setdefault(field, flag) != flag:
            raise ConfigError(f"`{flags[field]}` and `{flag}` both set `{field}`: leave one out")
        override(config, field, text)


def named_algorithm(argv: Sequence[str]) -> str:
    """The value of `--config.algorithm`, on a command line that is not checked; without it the default."""
    following = dict(itertools.pairwise(argv))
    found = DEFAULT
    for argument in argv:
        flag, equals, text = argument.partition("=")
        if flag.startswith("-") and flag.lstrip("-") == "config.algorithm":
            found = text if equals else following.get(argument, DEFAULT)
    return found


def _workdir(given: str | None, config_name: str) -> str:
    if not given:
        return os.path.join(resumption.RUNS, config_name, datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
    if storage.is_remote(given):
        storage.require_run_folder("--workdir", given)
    else:
        require_writable_folder("workdir", given)
    return given


def require_single(config: ConfigDict, command: str) -> None:
    """Raises ConfigError where `config` is of a population, of which a command would look at one member."""
    if (seeds := check_config(config).population.seeds) > 1:
        raise ConfigError(f"`population.seeds` (={seeds}): {command} looks at a single run")


def require_writable_folder(flag: str, path: str) -> None:
    """Raises ConfigError unless the local folder `path` can be written, or made."""
    existing = os.path.abspath(path)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ConfigError(f"`--{flag}` (={path!r}) must be a folder; {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"`--{flag}` (={path!r}) must be a folder that can be written; {existing} cannot")


def write_json(flag: str, path: str, record: Mapping[str, Any]) -> str:
    """Writes a file to where `--flag` asks for it, local or gs://, and returns `path`.

    Raises:
      ConfigError: it cannot be written.
    """
    from etils import epath

    file = epath.Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"`--{flag}` (={path!r}) cannot be written: {error}") from error
    return path


def _require_folder(name: str, path: str) -> None:
    if storage.is_remote(path):
        storage.require_folder(name, path)
    elif path and not os.path.isdir(os.path.expanduser(path)):
        raise ConfigError(f"`{name}` (={path!r}) must be a folder")
