"""N devices compute what one computes; see `measure.py`, which does the computing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import processes

pytestmark = pytest.mark.slow

# Of float32 after 20 updates; sums over devices are added in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


class Measured:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.facts: dict[str, Any] = json.loads((folder / "measured.json").read_text())

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self._folder / f"{name}.npz") as file:
            return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("devices")
    processes.succeed("-m", "tests.parallel.multi_device.measure", str(folder), devices=8, timeout=600)
    return Measured(folder)


def assert_close(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], err_msg=name, **TOLERANCE)


def test_first_trajectory_is_the_same(measured: Measured) -> None:
    # correctness 12 and 25: keys come from the global index of an environment.
    one, many = measured.arrays("trajectory_1"), measured.arrays("trajectory_2")
    assert one.keys() == many.keys()
    assert one["reset"][1:].any()  # an episode began within the rollout
    assert len({tuple(column) for column in one["action"].T}) > 16  # environments have keys of their own
    for name, expected in one.items():
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(many[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(many[name], expected, err_msg=name)


def test_five_iterations_learn_the_same(measured: Measured) -> None:
    one, many = measured.arrays("state_1"), measured.arrays("state_2")
    assert_close(many, one)


def test_metrics_are_the_same(measured: Measured) -> None:
    one, many = measured.facts["loop_1"]["metrics"], measured.facts["loop_2"]["metrics"]
    for expected, row in zip(one, many, strict=True):
        assert expected.keys() == row.keys()
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    assert sum(row["episode/count"] for row in one) > 0


def test_every_device_holds_the_same_parameters(measured: Measured) -> None:
    # correctness 25, bitwise: devices that differ by one rounding drift apart for ever.
    assert measured.facts["fit_8"]["replicas_equal"] is True


def test_every_device_holds_the_same_parameters_in_a_loop(measured: Measured) -> None:
    assert measured.facts["loop_2"]["replicas_equal"] is True


def test_fit_on_eight_devices_is_the_loop_on_one(measured: Measured) -> None:
    # correctness 12, 13 and 25: keys come from the global index of an environment, advantages are normalised,
    # gradients averaged and moments merged over all environments; an average per device would differ in the
    # first digits.
    assert measured.facts["fit_8"]["device"] == "8 x cpu"
    one = measured.arrays("state_1")
    assert_close(measured.arrays("state_fit"), one)
    initial = measured.arrays("initial_1")
    moved = {name: np.abs(one[f"params/{name}"] - start).max() for name, start in initial.items()}
    assert min(moved.values()) > 100 * TOLERANCE["atol"], moved


def test_state_is_donated(measured: Measured) -> None:
    # Without donation the devices hold every environment, normaliser and optimiser state twice.
    assert all(measured.facts["fit_8"]["donated"])


def test_nothing_crosses_to_the_host(measured: Measured) -> None:
    assert measured.facts["fit_8"]["host_transfers"] == []


def test_one_all_reduce_per_minibatch(measured: Measured) -> None:
    # Loops: 1 iterations, 2 epochs, 3 minibatches. Inside a minibatch every further sum would cost as much as
    # the gradient's, whose vector it can travel in.
    counts = {int(depth): count for depth, count in measured.facts["fit_8"]["all_reduces"].items()}
    assert max(counts) == 3
    assert counts[3] == 1
    assert counts.get(2, 0) == 0
    assert measured.facts["fit_8"]["other_collectives"] == []


def test_epochs_copy_no_batch(measured: Measured) -> None:
    # Minibatches are gathered from the rollout as it lies: a shuffled copy per epoch would be a pass over
    # memory more, for nothing. The rollout itself and its normalised observations are written once.
    counts = {int(depth): count for depth, count in measured.facts["batch_copies"].items()}
    assert counts.get(1, 0) >= 1
    assert sum(count for depth, count in counts.items() if depth >= 2) == 0


def test_checkpoint_of_eight_devices_continues_on_one(measured: Measured) -> None:
    # correctness 18, across devices: environments, carries and statistics go on where they were.
    assert measured.facts["restored"] == {"iteration": 5, "devices": 1}
    assert_close(measured.arrays("state_restored"), measured.arrays("state_1"))


def test_evaluation_plays_exact_numbers_of_episodes(measured: Measured) -> None:
    # correctness 21: also where the devices cannot share them evenly.
    evaluations = measured.facts["evaluations"]
    assert [evaluations[n][0] for n in ("5", "19")] == [5, 19]


def test_evaluation_gives_the_same_on_one_device(measured: Measured) -> None:
    evaluations = measured.facts["evaluations"]
    assert evaluations["5"] == pytest.approx(evaluations["5 on one device"])
