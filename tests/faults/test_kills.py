"""A run that is ended at any moment, in any way, resumes bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import numpy as np
import pytest

from tests.faults.harness import GRACE, Run, differences
from tests.faults.tiny import STEPS

SEED = int(os.environ.get("JAXRL_FAULTS_SEED", "0"))


# A kill in the middle of a save leaves more than one at any other moment, and SIGINT ends a run as SIGTERM
# does: tests/runs/test_signals.py.
@pytest.mark.parametrize(
    "is_whole", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.long)]
)
def test_whatever_ends_it_it_goes_on_bitwise(straight: Run, run: Run, is_whole: bool) -> None:
    if is_whole:
        _kill_at_any_moment(straight, run)
    training = run.start()
    assert training.pause_in_mid_save()
    training.kill()
    assert run.unfinished()
    assert run.damages() == []  # what is not finished is no checkpoint

    _stop(run, signal.SIGTERM, 143)
    if is_whole:
        _stop(run, signal.SIGINT, 130)

    before = run.newest()
    outcome = run.train()
    assert (outcome.code, outcome.stderr) == (0, "")
    assert f"resumed from the checkpoint at step {before:,}" in outcome.stdout
    assert before < run.newest()
    assert differences(run, straight) == []
    assert run.unfinished() == {}


def _kill_at_any_moment(straight: Run, run: Run) -> None:
    training = run.start()
    training.wait_until(training.is_training)
    times = [json.loads(line)["time"] for line in straight.lines()]
    delay = random.Random(SEED).uniform(0.0, 0.4) * (times[-1] - times[0])
    print(f"kill -9 after {delay:.3f} s of training, by JAXRL_FAULTS_SEED={SEED}")
    time.sleep(delay)
    assert training.kill().code == 137


def _stop(run: Run, signum: int, code: int) -> None:
    before = max(run.checkpoints, default=0)
    training = run.start()
    training.wait_until(lambda: max(run.checkpoints, default=0) > before)
    training.send(signum)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (code, "")
    assert outcome.seconds < GRACE
    # The iteration in flight is finished, saved and said.
    name = signal.Signals(signum).name
    assert f"{name}: saved at step {run.newest():,}" in outcome.stdout
    assert run.unfinished() == {}
    assert run.damages() == []
    assert run.lines()[-1].endswith("}\n")
    assert json.loads(run.lines()[-1])["step"] == run.newest()
    assert not (run.folder / "summary.json").exists()  # that is of runs that are done


@pytest.mark.long
def test_it_goes_on_on_another_number_of_devices(straight: Run, run: Run) -> None:
    before = 0
    for devices in (8, 1):
        training = run.start(f"--config.num_devices={devices}")
        training.wait_until(lambda: max(run.checkpoints, default=0) >= before + 4 * STEPS)  # noqa: B023
        training.kill()
        before = run.newest()
    outcome = run.train("--config.num_devices=4")
    assert (outcome.code, outcome.stderr) == (0, "")
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (summary["device"], summary["steps"]) == ("4 x cpu", straight.newest())
    # Not bitwise: devices add in another order. What that does to the rows of both resumes:
    rows, others = run.rows(), straight.rows()
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for row, other in zip(rows, others, strict=True):
        if row["step"] <= before + 4 * STEPS:
            assert row == pytest.approx(other, rel=1e-3, abs=1e-4), row["step"]
    print("largest difference in the end:", _largest_difference(run, straight))


def _largest_difference(run: Run, straight: Run) -> tuple[float, str]:
    """Of any parameter, relative to the largest of its array."""
    (_, arrays), (_, others) = run.final(), straight.final()
    names = [name for name in arrays if name.startswith("learner/policy/params/")]
    return max((float(np.abs(arrays[n] - others[n]).max() / np.abs(others[n]).max()), n) for n in names)
