"""The command line: flags, exit codes, and one line on stderr for bad input.

Nothing here imports jax: a typing mistake is answered in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from jaxrl.commands import resumption
from jaxrl.config import ConfigError, check_config, installation
from jaxrl.config.errors import RunError, did_you_mean
from jaxrl.config.files import load_config
from jaxrl.config.overrides import override
from jaxrl.config.selection import suitable_config
from jaxrl.metrics.files import discard
from jaxrl.parallel.processes import HEARTBEAT_SECONDS, JOIN_SECONDS, Processes, find
from jaxrl.parallel.signals import leave, must_leave
from jaxrl.runs import storage

FAILED, BAD_INPUT = 1, 2  # exit codes
# What flags of several commands may say at most.
LONGEST = 86_400.0  # seconds
LARGEST_BATCH, MOST_EPISODES, LARGEST_SEED = 2**20, 2**24, 2**32 - 1
_LARGEST_FLAG = 1_000_000
_PROCESS_FLAGS = ("coordinator", "num_processes", "process_id", "heartbeat", "watchdog", "join")
_FLAGS = ("config", "env", "workdir", "resume", "print-config", "debug", "help", *_PROCESS_FLAGS)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What a training run is started with."""

    config: ConfigDict
    workdir: str
    processes: Processes


def exit_code(job: Callable[[], int], debug: bool) -> int:
    """Runs a job and returns its exit code; an error becomes one line on stderr, with `debug` a traceback.

    Bad input is 2, a run that cannot continue 1 (75 if it lost a process), a signal 128 + its number. Ends
    the process itself where what was given up, such as a save, would hold it back.
    """
    code = _exit_code(job, debug)
    if reason := _broken_output():
        print(f"error: standard output cannot be written: {reason}", file=sys.stderr)
        code = code or FAILED
    if must_leave():
        leave(code)
    return code


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
            print("error:", " ".join(str(error).split()), file=sys.stderr)
        code = BAD_INPUT if isinstance(error, ConfigError) else error.exit_code
        _leave_others(code)
        return code
    except KeyboardInterrupt:
        leave(128 + signal.SIGINT)
    except Exception as error:
        if not debug and (missing := installation.missing_platform(error)):
            print("error:", missing, file=sys.stderr)
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
            print("error: the storage failed:", storage.reason(error), file=sys.stderr)
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
      usage: the module's docstring, which `--help` prints.
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


def parse_flags(
    values: flags.FlagValues, argv: Sequence[str], known_only: bool = False, positional: bool = False
) -> list[str]:
    """Parses `argv` into `values`.

    Args:
      values: flags of one job, defined on a `FlagValues` of its own.
      argv: the program's name and its arguments.
      known_only: leave flags that `values` does not know, instead of raising.
      positional: leave arguments that are no flags, instead of raising.

    Returns:
      The arguments that are left.

    Raises:
      ConfigError: an unknown flag, a wrong value, or an argument that is no flag.
    """
    values.set_gnu_getopt(True)
    try:
        left = values(list(argv), known_only=known_only)[1:]
    except flags.Error as error:
        raise ConfigError(str(error)) from error
    for name in values:
        if isinstance(number := values[name].value, float) and not math.isfinite(number):
            raise ConfigError(f"`--{name}` (={number}) must be a finite number")
    if left and not known_only and not positional:
        raise ConfigError(f"`{left[0]}` is no flag; flags start with --")
    return left


def parse_training(argv: Sequence[str]) -> Arguments:
    """Reads what to train, in which folder, with which processes.

    `CONFIG` or `--config=CONFIG` (a file, or the name of a shipped config), `--env=SUITE:NAME`,
    `--config.SECTION.FIELD=VALUE`, `--workdir=DIR`, `--resume`, `--resume=DIR` and the flags of processes.

    Raises:
      ConfigError: anything on the command line or in the config file is wrong.
    """
    argv, resumed = resumption.split(argv)
    values = flags.FlagValues()
    for name in ("config", "env", "workdir", "coordinator"):
        flags.DEFINE_string(name, None, "", flag_values=values)
    for name in _PROCESS_FLAGS[1:]:
        low = 0 if name in ("process_id", "watchdog") else 1
        default = {"heartbeat": HEARTBEAT_SECONDS, "join": JOIN_SECONDS}.get(name)
        flags.DEFINE_integer(name, default, "", low, _LARGEST_FLAG, flag_values=values)
    positional, overrides = _split_overrides(parse_flags(values, argv, known_only=True))
    given = [x for x in (values["config"].value, *positional) if x]
    if len(given) > 1:
        raise ConfigError(f"`{given[-1]}` is no flag; flags start with --, and there is one config")
    environment, workdir = values["env"].value or "", values["workdir"].value
    if resumed is not None and workdir:
        raise ConfigError(f"`--workdir` (={workdir}) and `--resume` both say a folder: leave one out")
    if resumed is not None and not (given or environment):
        resumed = resumed or resumption.latest()
        name, config, note = "", resumption.stored_config(resumed), f"resuming {resumed}"
    else:
        name, config, note = _config(given[0] if given else "", environment)
    for field, text in overrides:
        override(config, field, text)
    check_config(config)
    for field in ("init_from", "resume_from"):
        _require_folder(field, config.get(field, ""))
    others: dict[str, Any] = {flag: values[flag].value for flag in _PROCESS_FLAGS}
    processes = find(os.environ, **others)
    if note:
        print(note, file=sys.stderr)
    if resumed is not None:
        workdir = resumed or resumption.latest_of(name, config)
        resumption.require_run(workdir)
    return Arguments(config, _workdir(workdir, name), processes)


def _config(given: str, environment: str) -> tuple[str, ConfigDict, str]:
    """Returns the name of the config, the config, and why it was chosen where nobody named it."""
    if environment and not given:
        found = suitable_config(environment)
        note = f"--env={environment}: {found.reason}; choose another with --config=NAME"
        return found.name, found.config, note
    config = load_config(given)
    if environment:
        override(config, "env.name", environment)
    return os.path.splitext(os.path.basename(given))[0], config, ""


def _split_overrides(left: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Returns what is no flag, and `(field, text)` of each `--config.field=text` or `--config.field text`."""
    positional, found = [], []
    arguments = iter(left)
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        name = flag.lstrip("-")
        if not flag.startswith("-"):
            positional.append(argument)
            continue
        if name in _FLAGS and equals:
            raise ConfigError(f"`{flag}` takes no value, so `{argument}` says nothing")
        if not name.startswith("config."):
            raise ConfigError(f"unknown flag `{flag}`{did_you_mean(name, _FLAGS, prefix='--')}")
        if not equals:
            text = next(arguments, "--")
            if text.startswith("--"):
                raise ConfigError(f"`{flag}` needs a value: {flag}=VALUE")
        found.append((name.removeprefix("config."), text))
    return positional, found


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
