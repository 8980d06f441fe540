"""Programs that are compiled once for each configuration in a process, however many trainers it has."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.metrics.clock import Clock
from jaxrl.training.assembly import Assembly
from jaxrl.training.coordination import Coordinator
from jaxrl.types import TrainState

_build, _compile = Assembly.build, Assembly.compile
_built = functools.cache(_build)


def assembly_of(config: Config) -> Assembly:
    """What a trainer on the device drives: programs of its configuration, time and signals of its own.

    With `compile_once` a trainer that comes later compiles nothing.
    """
    clock = Clock()
    return dataclasses.replace(_built(config), clock=clock, coordinator=Coordinator(clock))


def compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets trainers on the device take the programs that are there, those that are given no assembly too."""

    def build(config: Config, *given: Any, **named: Any) -> Assembly:
        if given or named or registry.is_host(config.env.name):
            return _build(config, *given, **named)
        return assembly_of(config)

    def compile_new(assembly: Assembly, make_state: Callable[[], TrainState]) -> TrainState:
        if assembly.runtime.compiled is not None:
            return assembly.runtime.prepare(make_state())
        return _compile(assembly, make_state)

    monkeypatch.setattr(Assembly, "compile", compile_new)
    monkeypatch.setattr(Assembly, "build", build)
