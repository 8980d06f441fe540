"""Arguments of the names that fields hold, as in `suite:Name(argument=value)`."""

from __future__ import annotations

from typing import Any

from jaxrl.config.errors import ConfigError
from jaxrl.envs.names import format_call, parse_call


def name_alone(field: str, text: str) -> str:
    """The name in a value of `field`, without its arguments; raises ConfigError if it is none."""
    return _parse(field, text)[0]


def with_arguments(field: str, text: str, **changed: Any) -> str:
    """A value of `field`, with some arguments added or replaced; raises ConfigError if it is no name."""
    name, arguments = _parse(field, text)
    return format_call(name, arguments | changed)


def _parse(field: str, text: str) -> tuple[str, dict[str, Any]]:
    try:
        return parse_call(text)
    except ValueError as error:
        raise ConfigError(f"`{field}` (={text!r}): {error}") from error
