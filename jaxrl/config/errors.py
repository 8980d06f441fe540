"""Errors of a run or of its input, in one line."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator

from jaxrl.envs import modules

_FEW = 12  # names that still fit on a line


class ConfigError(ValueError):
    """Bad input. Its message is one line that names the field, its value and the rule."""


class RunError(Exception):
    """A run cannot continue, through no fault of its input. Its message is one line."""

    exit_code = 1


@contextlib.contextmanager
def errors_as(kind: type[Exception], label: object, *errors: type[Exception]) -> Iterator[None]:
    """Errors of these types that the block raises become a `kind`: `LABEL: ERROR`, or ERROR if that is ""."""
    try:
        yield
    except errors as error:
        raise kind(f"{label}: {error}" if label else str(error)) from error


def told(error: BaseException) -> str:
    """An error in one line: a message of ours as it is, others with their type and the user's line."""
    if isinstance(error, (ConfigError, RunError)):
        return " ".join(str(error).split())
    return modules.one_line(error)


def did_you_mean(name: str, valid: Iterable[str], prefix: str = "") -> str:
    """Ends an error about an unknown `name` with the nearest valid one, or all if few, after `prefix`."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean `{prefix}{near[0]}`?"
    if len(names) <= _FEW:
        return f"; valid: {', '.join(prefix + n for n in names)}"
    return f"; the nearest is `{prefix}{difflib.get_close_matches(name, names, n=1, cutoff=0)[0]}`"
