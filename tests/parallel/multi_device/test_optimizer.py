"""The optimiser divided among devices learns what one device learns; see `measure_optimizer.py`."""

from __future__ import annotations

import numpy as np
import pytest

from tests import processes
from tests.parallel.multi_device.measure_optimizer import CASES
from tests.parallel.multi_device.test_devices import Measured, assert_close

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("optimizer")
    module = "tests.parallel.multi_device.measure_optimizer"
    processes.succeed("-m", module, str(folder), devices=6, timeout=600)
    return Measured(folder)


@pytest.mark.parametrize("case", CASES)
def test_three_devices_learn_what_one_learns(measured: Measured, case: str) -> None:
    one, many = measured.facts[f"{case}_1"]["metrics"], measured.facts[f"{case}_3"]["metrics"]
    for expected, row in zip(one, many, strict=True):
        assert expected.keys() == row.keys()
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    # Parameters and Adam's moments.
    assert_close(measured.arrays(f"{case}_3"), measured.arrays(f"{case}_1"))
    # The cases are what they are called; the first iteration gathers statistics of observations.
    made = one[-1]["ppo/updates"]
    assert made == 8 and one[-1]["grad/norm"] > 0.02 if case == "clipped" else 0 < made < 8


@pytest.mark.parametrize("case", CASES)
def test_each_device_has_its_part(measured: Measured, case: str) -> None:
    found = measured.facts[f"{case}_3"]
    assert found["moments"] == [4096] * 3  # whole tiles
    assert 2 * 4096 < found["parameters"] <= 3 * 4096
    # Bitwise: devices that differ by one rounding drift apart for ever.
    assert found["replicas_equal"]


def test_a_minibatch_has_one_of_each_exchange(measured: Measured) -> None:
    # Loops: 1 iterations, 2 epochs, 3 minibatches. The norm of the gradient travels with the statistics.
    found = measured.facts["frozen_3"]["collectives"]
    at = {kind: {int(depth): n for depth, n in counts.items()} for kind, counts in found.items()}
    assert [at[kind][3] for kind in ("reduce-scatter", "all-reduce", "all-gather")] == [1, 1, 1]
    assert all(counts.get(2, 0) == 0 for counts in at.values())


def test_all_devices_skip_what_is_not_finite_on_one(measured: Measured) -> None:
    for devices in (1, 3):
        assert measured.facts[f"frozen_{devices}"]["skips"]["ppo/skipped"] > 0
        assert all(np.isfinite(x).all() for x in measured.arrays(f"nan_{devices}").values())
    assert_close(measured.arrays("nan_3"), measured.arrays("nan_1"))


@pytest.mark.parametrize(
    ("devices", "as_in"), [(1, "clipped_3"), (2, "clipped_3"), (6, "clipped_3"), (3, "clipped_saved")]
)
def test_checkpoints_continue_on_any_number_of_devices(measured: Measured, devices: int, as_in: str) -> None:
    """Saved on three devices; continued on fewer and on more, and read by three that are not divided."""
    assert_close(measured.arrays(f"restored_{devices}"), measured.arrays(as_in))
