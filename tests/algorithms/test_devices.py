"""N devices learn what one learns, whatever the algorithm; `measure_devices` does the computing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import processes
from tests.algorithms.tiny import ALGORITHMS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    # Virtual devices are made when jax starts.
    done = processes.run("-m", "tests.algorithms.measure_devices", devices=2, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.partition("FOUND")[2])
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_devices_learn_what_one_learns(measured: dict[str, Any], algorithm: str) -> None:
    # correctness 12, 13 and 25: sums of devices are added in another order, and nothing else differs.
    found = measured[algorithm]
    assert found["params_apart"] < 1e-4
    assert found["replicas_equal"]
    one, two = found["metrics"]
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert two[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("algorithm", ["uniform_dqn", "dqn", "r2d2", "sac", "recurrent_sac", "dagger"])
def test_two_devices_remember_the_same_rows(measured: dict[str, Any], algorithm: str) -> None:
    # With the priorities that they were given, so both have drawn the same rows.
    assert measured[algorithm]["memory_equal"]


def test_two_devices_draw_the_same_rows(measured: dict[str, Any]) -> None:
    one, two = measured["uniform_dqn"]["error"]
    assert two == pytest.approx(one, rel=1e-4)
