"""Environments that are named without a suite."""

from __future__ import annotations

from jaxrl.config.environment_process import ask

_LONGEST = 1000  # characters of a name; more is none


def full_name(field: str, environment: str) -> tuple[str, str]:
    """Returns `suite:Name` for a name that may lack the suite, and in words which suites have it.

    Args:
      field: the field that names it, for the error.
      environment: `suite:Name`, which stays, or `Name` as elsewhere: `CartPole-v1`, `ALE/Pong-v5`.

    Raises:
      ConfigError: no suite has it; the message says what may have to be installed.
    """
    short = environment.partition("(")[0]
    if not short or len(environment) > _LONGEST or (":" in short and not short.startswith("procgen:")):
        return environment, ""
    first, *others = ask("common_names", field, environment).split("\t")
    also = f"; also {', '.join(others)}" if others else ""
    return first, f"{environment} is {first}{also}"


def tell(environment: str) -> int:
    """Prints the environments of that name, or what is wrong; returns the exit code (2: wrong)."""
    from jaxrl.envs import common_names

    found = common_names.find(environment)
    print("\t".join(found) if found else common_names.not_found(environment))
    return 0 if found else 2
