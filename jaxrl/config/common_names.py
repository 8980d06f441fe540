"""Environments that are named without a suite."""

from __future__ import annotations

from jaxrl.config.environment_process import ask
from jaxrl.config.errors import ConfigError

_LONGEST = 1000  # characters of a name; more is none


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
    from jaxrl.envs import common_names, modules

    try:
        found = common_names.find(environment)
        if not found:
            raise common_names.not_found(environment)
    except Exception as error:  # whatever a suite raises when it is imported for its names
        reason = " ".join(str(error).split()) if isinstance(error, ValueError) else modules.one_line(error)
        raise ConfigError(f"`{field}` (={environment!r}): {reason}") from error
    return found[0]


def tell(environment: str) -> int:
    """Prints the environments of that name, or what is wrong; returns the exit code (2: wrong)."""
    from jaxrl.envs import common_names

    found = common_names.find(environment)
    print("\t".join(found) if found else common_names.not_found(environment))
    return 0 if found else 2


def _is_short(environment: str) -> bool:
    """True of a name without a suite."""
    short = environment.partition("(")[0]
    return bool(short and len(environment) <= _LONGEST and (":" not in short or short.startswith("procgen:")))
