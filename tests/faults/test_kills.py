"""A run that is ended at any moment, in any way, resumes bit for bit."""

from __future__ import annotations

import json
import signal

import pytest

from tests.faults.harness import GRACE, Run, differences


# A kill in the middle of a save leaves more than one at any other moment (test_campaign.py), and SIGINT ends
# a run as SIGTERM does: tests/runs/test_signals.py.
@pytest.mark.slow
def test_whatever_ends_it_it_goes_on_bitwise(straight: Run, run: Run) -> None:
    training = run.start()
    assert training.pause_in_mid_save()
    training.kill()
    assert run.unfinished()
    assert run.damages() == []  # what is not finished is no checkpoint

    _stop(run, signal.SIGTERM, 143)

    before = run.newest()
    outcome = run.train()
    assert (outcome.code, outcome.stderr) == (0, "")
    assert f"resumed from the checkpoint at step {before:,}" in outcome.stdout
    assert before < run.newest()
    assert differences(run, straight) == []
    assert run.unfinished() == {}


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
