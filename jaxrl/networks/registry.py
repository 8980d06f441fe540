"""Named factories: built-in ones by name, a user's own as `module:attribute`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Generic, TypeVar

from jaxrl.config.errors import ConfigError, did_you_mean

F = TypeVar("F", bound=Callable[..., object])


class Registry(Generic[F]):
    """Maps names to factories of one kind, for example encoders."""

    def __init__(self, field: str):
        self._field = field
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
        """Returns the factory of that name.

        Raises:
          ConfigError: the name is unknown, or `module:attribute` cannot be imported.
        """
        if name in self._factories:
            return self._factories[name]
        if ":" in name:
            return self._imported(name)
        hint = did_you_mean(name, self._factories)
        raise ConfigError(f"`{self._field}` (={name!r}) is no registered name, nor module:attribute{hint}")

    def _imported(self, name: str) -> F:
        module, _, attribute = name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"`{self._field}` (={name!r}) cannot be imported: {error}") from error
