"""Several processes train what one trains; what happens to one of them, and how the run goes on."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.parallel.multi_process.conftest import ITERATIONS
from tests.parallel.multi_process.pods import CONFIG, Pod, pod, rows, state, steps
from tests.parallel.multi_process.tiny import STEPS

States = dict[int, dict[str, np.ndarray]]
# Of float32: processes add in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def assert_same(folder: Path, expected: States) -> None:
    """The checkpoints of the first iterations are those of one process."""
    for step, arrays in expected.items():
        found = state(folder, step)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_allclose(found[name], array, err_msg=f"{name} at {step}", **TOLERANCE)
    first, last = expected[min(expected)], expected[max(expected)]
    moved = [
        np.abs(last[name] - first[name]).max() for name in first if name.startswith("learner/policy/params/")
    ]
    assert np.median(moved) > 100 * TOLERANCE["atol"]


def wait_for_checkpoint(training: Pod, after: int) -> None:
    training.wait_until(lambda: max(steps(training.folder), default=0) >= after)


# Of the first the launcher hears in the same way, and then of the others, which end with it.
@pytest.mark.long
@pytest.mark.parametrize("lost", [1, 0])
def test_a_lost_worker_and_on_with_one_process(tmp_path: Path, one_process: States, lost: int) -> None:
    folder = tmp_path / "run"
    with pod(folder, "2", "--devices=2", "--restart=1", "--shrink") as training:
        wait_for_checkpoint(training, ITERATIONS * STEPS)
        os.kill(training.starts[0][lost], signal.SIGKILL)
        begun = time.monotonic()
        training.wait_until(lambda: len(training.starts) == 2)
        assert time.monotonic() - begun < 15
        assert f"process {lost} was ended by SIGKILL" in training.output
        resumed = max(steps(folder))
        wait_for_checkpoint(training, resumed + 2 * STEPS)
        training.process.terminate()
        assert training.ended() == 143

    output = training.output
    assert "restart 1 of 1, from the newest checkpoint, with 1 processes" in output
    assert f"[0] resumed from the checkpoint at step {resumed:,}" in output
    assert f"[0] SIGTERM: saved at step {max(steps(folder)):,}" in output
    assert "[1] training" not in output  # the first alone shows the run
    assert_same(folder, one_process)
    trained = [row["steps"] for row in rows(folder) if "ppo/updates" in row]
    assert trained == [STEPS * (n + 1) for n in range(len(trained))]
    config = json.loads((folder / "config.json").read_text())
    assert config["device_count"] == 2  # of the process that was left


@pytest.mark.long
def test_a_stuck_worker_and_a_signal_to_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pod(folder, "2", "--devices=2", "--restart=1", "--watchdog=10") as training:
        wait_for_checkpoint(training, 2 * STEPS)
        os.kill(training.starts[0][1], signal.SIGSTOP)
        training.wait_until(lambda: len(training.starts) == 2)
        # Its lines come through a pipe of their own, which may be read after the launcher's.
        training.wait_until(lambda: "[0] error: no progress " in training.output)
        assert "process 0 lost another process, or was stuck (exit code 75)" in training.output
        resumed = max(steps(folder))
        wait_for_checkpoint(training, resumed + 2 * STEPS)
        os.kill(training.starts[1][1], signal.SIGTERM)  # not to the first
        assert training.ended() == 143
    assert f"[0] SIGTERM: saved at step {max(steps(folder)):,}" in training.output
    assert rows(folder)[-1]["step"] == max(steps(folder))


@pytest.mark.long
def test_any_number_of_processes_trains_the_same(tmp_path: Path, one_process: States) -> None:
    folder = tmp_path / "run"
    for count, iterations in ((2, 2), (4, ITERATIONS)):
        stop = f"--config.stop.steps={iterations * STEPS}"
        with pod(folder, str(count), f"--devices={4 // count}", stop) as training:
            assert training.ended() == 0, training.output
    assert_same(folder, one_process)
    assert json.loads((folder / "summary.json").read_text())["device"] == "4 x cpu in 4 processes"


@pytest.mark.slow
def test_two_processes_of_one_device_are_two_devices_bitwise(tmp_path: Path) -> None:
    # With two terms there is only one order to add in.
    stop = f"--config.stop.steps={ITERATIONS * STEPS}"
    alone, together = tmp_path / "one", tmp_path / "two"
    processes.succeed("-m", "jaxrl.main", f"--config={CONFIG}", f"--workdir={alone}", stop, devices=2)
    with pod(together, "2", "--devices=1", stop) as training:
        assert training.ended() == 0, training.output
    one, two = (state(folder, ITERATIONS * STEPS) for folder in (alone, together))
    assert one.keys() == two.keys()
    assert [name for name in one if one[name].tobytes() != two[name].tobytes()] == []
