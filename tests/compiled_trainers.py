"""Programs that are compiled once for each configuration in a process, however many trainers it has."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jaxrl.config import Config
from jaxrl.envs import registry
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.sharding import Topology
from jaxrl.training.assembly import Assembly
from jaxrl.training.coordination import Coordinator
from jaxrl.types import TrainState

_on, _compile = Assembly._on, Assembly.compile


class _Latest:
    """The coordinator of the trainer that was built last, for evaluators that several trainers share."""

    def __init__(self) -> None:
        self.coordinator: Coordinator | None = None

    def gives_up(self) -> bool:
        assert self.coordinator is not None
        return self.coordinator.gives_up()


@functools.cache
def _built(config: Config) -> tuple[Assembly, _Latest]:
    latest: Any = _Latest()
    return _on(config, Clock(), Topology.of(config.device_count), latest), latest


def _shared(config: Config, clock: Clock, coordinator: Coordinator) -> Assembly:
    assembly, latest = _built(config)
    latest.coordinator = coordinator
    return dataclasses.replace(assembly, clock=clock, coordinator=coordinator)


def assembly_of(config: Config) -> Assembly:
    """What a trainer on the device drives: programs of its configuration, time and signals of its own.

    With `compile_once` a trainer that comes later compiles nothing.
    """
    clock = Clock()
    return _shared(config, clock, Coordinator(clock))


def compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets trainers on the device, and their stages, take the programs that trainers before them compiled."""

    def on(config: Config, clock: Clock, topology: Topology, coordinator: Coordinator) -> Assembly:
        if registry.is_host(config.env.name):
            return _on(config, clock, topology, coordinator)
        return _shared(config, clock, coordinator)

    def compile_new(assembly: Assembly, make_state: Callable[[], TrainState]) -> TrainState:
        if assembly.runtime.compiled is not None:
            return assembly.runtime.prepare(make_state())
        return _compile(assembly, make_state)

    monkeypatch.setattr(Assembly, "compile", compile_new)
    monkeypatch.setattr(Assembly, "_on", staticmethod(on))


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """`compile_once` for as long; lets go of all programs afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        compile_once(patch)
        yield
    _built.cache_clear()
