"""Commands from outside: exit codes, what they print, and one line on stderr for bad input.

Nothing here imports jax: a typing mistake is answered in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ml_collections import ConfigDict

from jaxrl.commands.arguments import Argument, CommandArguments, help_text
from jaxrl.config import ConfigError, check_config, installation
from jaxrl.config.errors import RunError, errors_as, told
from jaxrl.config.local_files import discard
from jaxrl.config.text import one_line, printable
from jaxrl.envs import modules
from jaxrl.parallel.process_exit import before_leaving, leave, must_leave
from jaxrl.reporting.display import live_panel
from jaxrl.runs import storage

Flags = TypeVar("Flags", bound=CommandArguments)
FAILED, BAD_INPUT = 1, 2  # exit codes
_UNUSABLE_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)  # of files: any access to one raises such an error
# Upper bounds of flags of several commands.
LONGEST = 86_400.0  # seconds
LARGEST_BATCH = 2**20
MOST_EPISODES = 2**24


def exit_code(job: Callable[[], int], debug: bool) -> int:
    """Runs a job and returns its exit code; an error becomes one line on stderr, with `debug` a traceback.

    Bad input is 2, a run that cannot continue 1 (75 if it lost a process), a signal 128 + its number. Ends
    the process itself if what was given up, such as a save, would hold it back. An error that did not come
    through a file of the user's is a fault of this package, and raised.
    """
    before_leaving(live_panel.restore_before_exit)
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


def measuring(name: str, number: int, of: int) -> None:
    """Prints, beside the output, which of several is being measured."""
    line = f"measuring {name} ({number} of {of}) ..."
    print(printable(line, getattr(sys.stderr, "encoding", None)), file=sys.stderr, flush=True)


def output_encoding() -> str | None:
    """The encoding of standard output; None if it is closed."""
    return None if sys.stdout is None else sys.stdout.encoding


def _broken_output(text: str = "") -> str | None:
    """Writes and flushes; returns why standard output loses it, "" if its reader has gone, or None."""
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
        of_users = modules.passed_users(error) and not debug
        if not storage_failed and not of_users and not _has_others():
            raise
        if storage_failed:
            complain(f"the storage failed: {storage.reason(error)}")
        elif of_users:
            complain(told(error))
        else:
            traceback.print_exc()
        _leave_others(FAILED)
        return FAILED


def _leave_others(code: int) -> None:
    """Ends this process if it is one of several: the usual way out waits for the others."""
    if _has_others():
        leave(code)


def _has_others() -> bool:
    if "jax" not in sys.modules:
        return False  # Bad input was found before.
    from jaxrl.parallel import process_group

    return process_group.has_joined()


@dataclasses.dataclass(frozen=True)
class Command:
    """A command, which is called with the program's name and its arguments; None takes the process's.

    Attributes:
      introduction: the docstring of its module, for the help.
      arguments: what it takes.
      job: of the program's name and its arguments; returns the exit code.
      reference: makes a text that the help ends with.
    """

    introduction: str | None
    arguments: tuple[Argument, ...]
    job: Callable[[Sequence[str]], int]
    reference: Callable[[], str] | None = None

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Returns the exit code, as `exit_code` has it."""
        given = list(sys.argv if argv is None else argv)
        if {"--help", "-h", "-help"} & set(given):
            usage = help_text(self.introduction, self.arguments)
            show(f"{usage}\n{self.reference()}" if self.reference else usage)
            return 0
        return exit_code(lambda: self.job(given), "--debug" in given)


def command(
    introduction: str | None,
    flags: type[Flags],
    known_only: bool = False,
    positional: bool = False,
    reference: Callable[[], str] | None = None,
) -> Callable[[Callable[[Flags, list[str]], int]], Command]:
    """Makes a command of a function of its flags and the arguments that are left.

    Args:
      introduction, reference: see `Command`.
      flags: the class that declares them.
      known_only: leave flags that are not declared to the function; see `CommandArguments.parse`.
      positional: leave it arguments that are no flags.
    """

    def make(job: Callable[[Flags, list[str]], int]) -> Command:
        run = lambda argv: job(*flags.parse(argv, known_only, positional))  # noqa: E731
        return Command(introduction, flags.arguments(), run, reference)

    return make


def show(text: str) -> None:
    """Prints long text, in the characters of standard output; a reader such as `head` may close it early."""
    if reason := _broken_output(f"{printable(text, output_encoding())}\n"):
        print(f"error: standard output cannot be written: {reason}", file=sys.stderr)
        raise SystemExit(FAILED)


def require_single(config: ConfigDict, command: str) -> None:
    """Raises ConfigError if `config` is of a population, as a command would look at only one member."""
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
    with errors_as(ConfigError, f"`--{flag}` (={path!r}) cannot be written", OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=2) + "\n")
    return path
