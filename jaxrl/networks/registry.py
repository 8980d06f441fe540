"""Named factories: built-in and installed packages' ones by name, custom ones as `module:attribute`.

A package registers an encoder, a core or a head as the entry point `encoder.NAME`, `core.NAME` or
`head.NAME` of the group `jaxrl.networks`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from jaxrl.config.errors import ConfigError, did_you_mean, errors_as
from jaxrl.envs import entry_points, modules

F = TypeVar("F", bound=Callable[..., object])

ENTRY_POINTS = "jaxrl.networks"


class Registry(Generic[F]):
    """Maps names to factories of one kind, for example encoders.

    Args:
      field: of the configuration, which holds the name.
      arguments: of a factory. A user's own must call them so: a name in a configuration must not be
        able to call any function there is.
      kind: the type that a factory returns.
      construct: makes a factory of a class of `kind` that a user names; the first argument begins its errors.
        None: only functions are taken.
    """

    def __init__(
        self,
        field: str,
        arguments: tuple[str, ...],
        kind: type,
        construct: Callable[[str, type], F] | None = None,
    ):
        self._field = field
        self._arguments = arguments
        self._kind = kind
        self._construct = construct
        self._prefix = f"{field.rpartition('.')[2]}."  # of entry points
        self._factories: dict[str, F] = {}

    def names(self) -> list[str]:
        return sorted(self._factories)

    def register(self, name: str) -> Callable[[F], F]:
        """Decorator that adds a factory; a name can be taken only once."""

        def add(factory: F) -> F:
            if name in self._factories:
                raise ValueError(f"`{self._field}` {name!r} is registered already")
            self._factories[name] = factory
            return factory

        return add

    def get(self, name: str) -> F:
        """Returns the factory of that name; a user's own raises ConfigError if it fails.

        Raises:
          ConfigError: the name is unknown, or `module:attribute` cannot be imported or is no such factory.
        """
        given = f"`{self._field}` (={name!r})"
        factory = self._from_package(given, name)
        if factory is None and ":" in name:
            factory = import_attribute(given, name)
        if factory is not None:
            return self._guard(given, factory)
        if name in self._factories:
            return self._factories[name]
        names = entry_points.names(ENTRY_POINTS)
        installed = {x.removeprefix(self._prefix) for x in names if x.startswith(self._prefix)}
        hint = did_you_mean(name, {*self._factories, *installed})
        raise ConfigError(f"{given} is no registered name, nor module:attribute{hint}")

    def _from_package(self, given: str, name: str) -> Any:
        """The value that an installed package registers under a name; None if none does."""
        with errors_as(ConfigError, given, ValueError):
            point = entry_points.find(ENTRY_POINTS, f"{self._prefix}{name}")
            if point is not None and name in self._factories:
                raise entry_points.clash(point)
            return None if point is None else entry_points.load(point)

    def _guard(self, given: str, found: Any) -> F:
        """A factory from outside, which raises ConfigError if it fails; `given` begins the errors."""
        if self._construct and inspect.isclass(found) and issubclass(found, self._kind):
            found = self._construct(given, found)
        elif not self._takes_the_arguments(found):
            kind = f" or a class of {self._kind.__module__}.{self._kind.__name__}" if self._construct else ""
            raise ConfigError(f"{given} must be a function of ({', '.join(self._arguments)}){kind}")

        def check(*arguments: Any) -> Any:
            try:
                made = found(*arguments)
            except ConfigError:
                raise
            except Exception as error:
                raise ConfigError(f"{given} raised {modules.one_line(error)}") from error
            if not isinstance(made, self._kind):
                wanted = f"{self._kind.__module__}.{self._kind.__name__}"
                raise ConfigError(f"{given} must return a {wanted}, not {type(made).__name__}")
            return made

        return cast(F, check)

    def _takes_the_arguments(self, found: Any) -> bool:
        if not inspect.isfunction(found):
            return False
        parameters = list(inspect.signature(found).parameters.values())
        taken = parameters[: len(self._arguments)]
        rest = parameters[len(self._arguments) :]
        optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return tuple(p.name for p in taken) == self._arguments and all(
            p.default is not p.empty or p.kind in optional for p in rest
        )


def import_attribute(given: str, name: str) -> Any:
    """The value that `name` says as `module:attribute`; `given` begins the ConfigError."""
    path, _, attribute = name.partition(":")
    with errors_as(ConfigError, f"{given} cannot be imported", ImportError, AttributeError, ValueError):
        return getattr(modules.load(path), attribute)
