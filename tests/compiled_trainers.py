"""Programs that are compiled once for each configuration in a process, however many trainers it has."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import pytest

from jaxrl.config import Config
from jaxrl.metrics.clock import Clock
from jaxrl.training.assembly import Assembly
from jaxrl.training.coordination import Coordinator
from jaxrl.types import TrainState

_built = functools.cache(Assembly.build)
_compile = Assembly.compile


def assembly_of(config: Config) -> Assembly:
    """What a trainer on the device drives: programs of its configuration, time and signals of its own.

    With `compile_once` a trainer that comes later compiles nothing.
    """
    clock = Clock()
    return dataclasses.replace(_built(config), clock=clock, coordinator=Coordinator(clock))


def compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets trainers take the programs that are there."""

    def compile_new(assembly: Assembly, make_state: Callable[[], TrainState]) -> TrainState:
        if assembly.runtime.compiled is not None:
            return assembly.runtime.prepare(make_state())
        return _compile(assembly, make_state)

    monkeypatch.setattr(Assembly, "compile", compile_new)
