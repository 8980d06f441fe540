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

from jaxrl.commands.arguments import Argument, CommandArguments, help_text
from jaxrl.config import ConfigError, installation
from jaxrl.config.errors import RunError, errors_as, told
from jaxrl.config.local_files import discard, is_remote
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
    if _report_loss(_broken_output()):
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


def _report_loss(reason: str | None) -> bool:
    """Prints why standard output cannot be written; True if there is a reason to print."""
    if reason:
        print(f"error: standard output cannot be written: {reason}", file=sys.stderr)
    return bool(reason)


def _exit_code(job: Callable[[], int], debug: bool) -> int:
    try:
        return job()
    except (ConfigError, RunError) as error:
        code = BAD_INPUT if isinstance(error, ConfigError) else error.exit_code
        return _conclude(code, None if debug else error)
    except KeyboardInterrupt:
        leave(128 + signal.SIGINT)
    except Exception as error:
        if not debug and isinstance(error, OSError) and error.errno in _UNUSABLE_NAMES:
            return _conclude(BAD_INPUT, f"{error.filename}: {error.strerror}")
        if not debug and (missing := installation.missing_platform(error)):
            return _conclude(BAD_INPUT, missing)
        if isinstance(error, OSError) and (reason := _broken_output("\n")) is not None:
            failed = _report_loss(reason)
            _leave_others(FAILED)
            return FAILED if failed else 0
        if not debug and storage.is_failure(error):
            return _conclude(FAILED, f"the storage failed: {storage.reason(error)}")
        if not debug and modules.passed_users(error):
            return _conclude(FAILED, told(error))
        if not _has_others():
            raise
        return _conclude(FAILED, None)


def _conclude(code: int, message: object | None) -> int:
    """Prints the message, without one the traceback; returns the code, or ends one of several processes."""
    if message is None:
        traceback.print_exc()
    else:
        complain(message)
    _leave_others(code)
    return code


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
    """Makes a command of a function of its flags and of what `CommandArguments.parse` leaves."""

    def make(job: Callable[[Flags, list[str]], int]) -> Command:
        run = lambda argv: job(*flags.parse(argv, known_only, positional))  # noqa: E731
        return Command(introduction, flags.arguments(), run, reference)

    return make


def show(text: str) -> None:
    """Prints long text, in the characters of standard output; a reader such as `head` may close it early."""
    if _report_loss(_broken_output(f"{printable(text, output_encoding())}\n")):
        raise SystemExit(FAILED)


def require_writable_folder(flag: str, path: str) -> None:
    """Raises ConfigError if `path` is a local folder that cannot be written, or made."""
    if is_remote(path):
        return
    existing = os.path.abspath(path)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ConfigError(f"`--{flag}` (={path!r}) must be a folder; {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"`--{flag}` (={path!r}) must be a folder that can be written; {existing} cannot")


def write_json(flag: str, path: str, record: Mapping[str, Any]) -> None:
    """Writes a file to where `--flag` asks for it, local or gs://, and says so; ConfigError if it cannot."""
    from etils import epath

    file = epath.Path(path)
    with errors_as(ConfigError, f"`--{flag}` (={path!r}) cannot be written", OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=2) + "\n")
    say(f"written to {path}")
