"""Environments that are named without a suite."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence

from jaxrl.config.errors import ConfigError, errors_as

_LONGEST = 1000  # characters of a name; more is none
_ASK = "import sys; from jaxrl.config import {module}; sys.exit({module}.tell(sys.argv[1]))"


def full_name(field: str, environment: str) -> tuple[str, str]:
    """Returns `suite:Name` for a name that may lack the suite, and in words which suites have it.

    Args:
      field: the field that names it, for the error.
      environment: `suite:Name`, which stays, or `Name` as elsewhere: `CartPole-v1`, `ALE/Pong-v5`.

    Raises:
      ConfigError: no suite has it; the message lists what may have to be installed.
    """
    if not _is_short(environment):
        return environment, ""
    first, *others = ask("common_names", field, environment).split("\t")
    also = f"; also {', '.join(others)}" if others else ""
    return first, f"{environment} is {first}{also}"


def full_name_here(field: str, environment: str) -> str:
    """The name of `full_name`, found in this process, which must have chosen its devices."""
    if not _is_short(environment):
        return environment
    from jaxrl.envs import catalogue, modules

    try:
        found = catalogue.find(environment)
        if not found:
            raise catalogue.not_found(environment)
    except Exception as error:  # whatever a suite raises when it is imported for its names
        reason = " ".join(str(error).split()) if isinstance(error, ValueError) else modules.one_line(error)
        raise ConfigError(f"`{field}` (={environment!r}): {reason}") from error
    return found[0]


def tell(environment: str) -> int:
    """Prints the environments of that name, or what is wrong; returns the exit code (2: wrong)."""
    from jaxrl.envs import catalogue

    found = catalogue.find(environment)
    print("\t".join(found) if found else catalogue.not_found(environment))
    return 0 if found else 2


def import_path() -> str:
    """The folders from which this process imports, as PYTHONPATH names them."""
    return os.pathsep.join(p for p in sys.path if p)


def _is_short(environment: str) -> bool:
    """True of a name without a suite."""
    short = environment.partition("(")[0]
    return bool(short and len(environment) <= _LONGEST and (":" not in short or short.startswith("procgen:")))


def ask(module: str, field: str, environment: str) -> str:
    """Returns the last line that `tell(environment)` of a module of this package prints, in its own process.

    To make an environment may start jax's devices, which must not happen before they are chosen.

    Raises:
      ConfigError: it returns another code than 0; the message has its last line.
    """
    return _answer(module, field, environment, import_path())


# A configuration is checked more than once on its way to a run, and each question takes seconds. Errors are
# not kept: what is missing may be installed meanwhile.
@functools.cache
def _answer(module: str, field: str, environment: str, path: str) -> str:
    with errors_as(ConfigError, f"`{field}` (={environment!r})", ConfigError):
        return last_line(["-c", _ASK.format(module=module), environment], path)


def last_line(arguments: Sequence[str], path: str, sent: str = "") -> str:
    """The last line that Python prints on a CPU, with the import path `path` and `sent` on standard input.

    Raises:
      ConfigError: it ends with another code than 0; the message is its last line.
    """
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    asked = subprocess.run([sys.executable, *arguments], env=env, input=sent, capture_output=True, text=True)
    lines = (asked.stdout if asked.returncode in (0, 2) else asked.stderr).strip().splitlines()
    if asked.returncode:
        raise ConfigError(lines[-1] if lines else "the environment cannot be made")
    return lines[-1]
