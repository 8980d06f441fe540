"""N devices learn what one learns, whatever the algorithm; `measure_devices` does the computing."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests import processes
from tests.algorithms.tiny import ALGORITHMS

# A memory of steps; one of sequences draws on devices what it draws on one:
# tests/experience/replay/test_sequence_replay.py. PPO has tests/parallel/multi_device/test_devices.py.
DISTINCT = ("dqn",)


def each(names: Iterable[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(x, marks=pytest.mark.slow if x in DISTINCT else pytest.mark.long) for x in names]
    return pytest.mark.parametrize("algorithm", marked)


@functools.cache
def _measured(names: tuple[str, ...]) -> dict[str, Any]:
    # Virtual devices are made when jax starts.
    done = processes.succeed("-m", "tests.algorithms.measure_devices", *names, devices=2, timeout=600)
    return json.loads(done.stdout.partition("FOUND")[2])


def measured(algorithm: str) -> dict[str, Any]:
    alike = tuple(name for name in ALGORITHMS if name not in DISTINCT)
    return _measured(DISTINCT if algorithm in DISTINCT else alike)[algorithm]


@each(ALGORITHMS)
def test_two_devices_learn_what_one_learns(algorithm: str) -> None:
    # correctness 12, 13 and 25: sums of devices are added in another order, and nothing else differs.
    found = measured(algorithm)
    assert found["params_apart"] < 1e-4
    assert found["replicas_equal"]
    one, two = found["metrics"]
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert two[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


@each(["uniform_dqn", "dqn", "r2d2", "sac", "recurrent_sac", "dagger"])
def test_two_devices_remember_the_same_rows(algorithm: str) -> None:
    # With the priorities that they were given, so both have drawn the same rows.
    assert measured(algorithm)["memory_equal"]


@pytest.mark.long
def test_two_devices_draw_the_same_rows() -> None:
    one, two = measured("uniform_dqn")["error"]
    assert two == pytest.approx(one, rel=1e-4)
