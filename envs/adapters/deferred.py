"""Delays imports that a package makes eagerly."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """Gives imports inside the block stand-ins for the modules `names`, which load them when they are used.

    gymnax imports seaborn and matplotlib for its drawings: 1.9 of the 2.2 seconds that its import takes.
    Modules that are loaded already stay as they are, and imports after the block see the real ones.

    Args:
      names: a package before the modules in it, as `a`, `a.b`: `import a.b` imports both.
    """
    standins = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(standins)
    for name, standin in standins.items():
        package, _, attribute = name.rpartition(".")
        if package in standins:
            setattr(standins[package], attribute, standin)
    try:
        yield
    finally:
        for name, standin in standins.items():
            if sys.modules.get(name) is standin:
                del sys.modules[name]


class _StandIn(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        # The machinery of imports and `inspect` ask any module for such names; that is no use of it.
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        parts = self.__name__.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if isinstance(sys.modules.get(name), _StandIn):
                del sys.modules[name]
        return getattr(importlib.import_module(self.__name__), attribute)
