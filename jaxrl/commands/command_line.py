"""The command line: flags, config files, overrides, and one line on stderr for bad input.

Nothing here imports jax: a typing mistake is answered in a fraction of a second.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import difflib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, get_origin

from absl import flags
from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, declared_fields
from jaxrl.config.errors import RunError, did_you_mean
from jaxrl.parallel.processes import HEARTBEAT_SECONDS, JOIN_SECONDS, Processes, find
from jaxrl.parallel.signals import leave
from jaxrl.runs import storage

FAILED, BAD_INPUT = 1, 2  # exit codes
_PROCESS_FLAGS = ("coordinator", "num_processes", "process_id", "heartbeat", "watchdog", "join")
_FLAGS = ("config", "workdir", "debug", "help", *_PROCESS_FLAGS)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What a training run is started with."""

    config: ConfigDict
    workdir: str
    processes: Processes


def exit_code(job: Callable[[], int], debug: bool) -> int:
    """Runs a job and returns its exit code; an error becomes one line on stderr, with `debug` a traceback.

    Bad input is 2, a run that cannot go on 1 (75 where it lost another process), a signal 128 + its number.
    """
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
    """What the `main` of every job but training does; returns the exit code, as `exit_code` has it.

    Args:
      usage: the module's docstring, which `--help` prints.
      job: takes the program's name and its arguments.
      argv: these, or None for those of the process.
    """
    argv = list(sys.argv if argv is None else argv)
    if {"--help", "-h", "-help"} & set(argv):
        print(usage)
        return 0
    return exit_code(lambda: job(argv), "--debug" in argv)


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
    if left and not known_only and not positional:
        raise ConfigError(f"`{left[0]}` is no flag; flags start with --")
    return left


def parse_training(argv: Sequence[str]) -> Arguments:
    """Reads `--config=FILE`, `--config.SECTION.FIELD=VALUE`, `--workdir=DIR` and which processes there are.

    Raises:
      ConfigError: anything on the command line or in the config file is wrong.
    """
    values = flags.FlagValues()
    flags.DEFINE_string("config", "", "Python file with get_config() -> ConfigDict.", flag_values=values)
    flags.DEFINE_string("workdir", None, "Folder of the run.", flag_values=values)
    flags.DEFINE_string("coordinator", None, "HOST:PORT of the first process.", flag_values=values)
    for name in _PROCESS_FLAGS[1:]:
        low = 0 if name in ("process_id", "watchdog") else 1
        default = {"heartbeat": HEARTBEAT_SECONDS, "join": JOIN_SECONDS}.get(name)
        flags.DEFINE_integer(name, default, "", lower_bound=low, flag_values=values)
    left = parse_flags(values, argv, known_only=True)
    overrides = _split_overrides(left)
    path = str(values["config"].value)
    config = load_config(path)
    for name, text in overrides:
        override(config, name, text)
    check_config(config)
    _require_folder("init_from", config.get("init_from", ""))
    given: dict[str, Any] = {name: values[name].value for name in _PROCESS_FLAGS}
    processes = find(os.environ, **given)
    return Arguments(config, _workdir(values["workdir"].value, path), processes)


def load_config(path: str) -> ConfigDict:
    """Runs the config file and returns its `get_config()`.

    Raises:
      ConfigError: there is no such file, it raises, or it does not return a ConfigDict.
    """
    if not path:
        raise ConfigError("`--config` is missing: name a config file, such as --config=configs/ppo.py")
    if not os.path.isfile(path):
        raise ConfigError(f"`--config` (={path!r}) is no file{_similar_file(path)}")
    given = f"`--config` (={path!r})"
    spec = importlib.util.spec_from_file_location("_jaxrl_config_file", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{given} must be a Python file, with the ending .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = module.get_config() if hasattr(module, "get_config") else None
    except Exception as error:
        raise ConfigError(f"{given} raised {type(error).__name__}: {error}{_line_of(error, path)}") from error
    if not isinstance(config, ConfigDict):
        raise ConfigError(f"{given} must define get_config() that returns a ConfigDict")
    return config


def override(config: ConfigDict, name: str, text: str) -> None:
    """Sets the field `name` (dotted) of `config` to the value written in `text`.

    Raises:
      ConfigError: there is no such field, or the text does not say a value of its type.
    """
    declared = declared_fields()
    if name not in declared:
        fields = [field for field in declared if field.startswith(f"{name}.")]
        if fields:
            raise ConfigError(f"`config.{name}` is a section; set its fields, such as `config.{fields[0]}`")
        raise ConfigError(f"`config.{name}` is no field{did_you_mean(name, declared, prefix='config.')}")
    value = declared[name].check(_parse_value(text, declared[name].kind))
    *section, field = name.split(".")
    with config.unlocked(), config.ignore_type():
        target = config
        for key in section:
            if key not in target:
                target[key] = ConfigDict()
            target = target[key]
        target[field] = value


def _parse_value(text: str, kind: Any) -> Any:
    """Reads a Python literal or true/false/none; anything else stays a string, for `check` to judge."""
    if kind is str:
        return text
    words = {"true": True, "false": False, "none": None}
    if get_origin(kind) is tuple and text.lower() in ("", "none"):
        return ()
    if text.lower() in words:
        return words[text.lower()]
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = _split_at_commas(text) if kind == tuple[str, ...] else text
    if get_origin(kind) is tuple and not isinstance(value, (tuple, list)):
        return (value,)  # --config.network.hidden_sizes=64
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # --config.stop.steps=1e6
    return value


def _split_at_commas(text: str) -> tuple[str, ...]:
    """`a(x=1,y=2), b` as `("a(x=1,y=2)", "b")`: commas in brackets separate nothing."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(part.strip() for part in parts)


def _split_overrides(left: Sequence[str]) -> list[tuple[str, str]]:
    """Returns `(field, text)` of each `--config.field=text` or `--config.field text`."""
    found = []
    arguments = iter(left)
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        name = flag.lstrip("-")
        if not flag.startswith("-"):
            raise ConfigError(f"`{argument}` is no flag; flags start with --")
        if name in _FLAGS:
            raise ConfigError(f"`{flag}` takes no value, so `{argument}` says nothing")
        if not name.startswith("config."):
            raise ConfigError(f"unknown flag `{flag}`{did_you_mean(name, _FLAGS, prefix='--')}")
        if not equals:
            text = next(arguments, "--")
            if text.startswith("--"):
                raise ConfigError(f"`{flag}` needs a value: {flag}=VALUE")
        found.append((name.removeprefix("config."), text))
    return found


def _workdir(given: str | None, config_path: str) -> str:
    if not given:
        stem = os.path.splitext(os.path.basename(config_path))[0]
        return os.path.join("runs", stem, datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
    if storage.is_remote(given):
        storage.require_run_folder("--workdir", given)
    else:
        require_writable_folder("workdir", given)
    return given


def require_writable_folder(flag: str, path: str) -> None:
    """Raises ConfigError unless the local folder `path` can be written, or made."""
    existing = os.path.abspath(path)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ConfigError(f"`--{flag}` (={path!r}) must be a folder; {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"`--{flag}` (={path!r}) must be a folder that can be written; {existing} cannot")


def _require_folder(name: str, path: str) -> None:
    if storage.is_remote(path):
        storage.require_folder(name, path)
    elif path and not os.path.isdir(os.path.expanduser(path)):
        raise ConfigError(f"`{name}` (={path!r}) must be a folder")


def _similar_file(path: str) -> str:
    folder = os.path.dirname(path) or "."
    files = [f for f in os.listdir(folder) if f.endswith(".py")] if os.path.isdir(folder) else []
    near = difflib.get_close_matches(os.path.basename(path), files, n=1)
    return f"; did you mean `{os.path.join(folder, near[0])}`?" if near else ""


def _line_of(error: Exception, path: str) -> str:
    """Returns the line of the config file at which the error arose; a SyntaxError says it by itself."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == os.path.abspath(path)]
    return f" (line {lines[-1]})" if lines else ""
