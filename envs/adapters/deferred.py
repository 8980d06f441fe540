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

    gymnax imports seaborn and pyplot for its drawings: 1.7 of the 2.2 seconds that its import takes.
    Modules that are loaded already stay as they are, and imports after the block see the real ones.
    """
    standins = {name: _StandIn(name) for name in names if name not in sys.modules}
    sys.modules.update(standins)
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
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), attribute)
