"""Signals while there is nothing to save, and the command that resumes: what the user sees."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.harness import GRACE, ROOT, Run
from tests.faults.tiny import STEPS

# What compiles soon, as it remembers nothing.
SIMPLE = (
    *("--config.network.core=none", "--config.normalize.rewards=false"),
    "--config.ppo.schedule=constant",  # not by the budget: the shorter run has the same program
)


@pytest.mark.slow
def test_a_signal_while_compiling_ends_at_once(run: Run) -> None:
    training = run.start(cached=False)
    training.wait_until_it_says("compiling the training program")
    time.sleep(1.0)
    training.send(signal.SIGTERM)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (143, "")
    assert outcome.seconds < GRACE
    assert run.checkpoints == {}
    assert run.lines() == []


@pytest.mark.slow
def test_the_command_that_a_signal_prints_resumes(run: Run) -> None:
    options = (*SIMPLE, f"--config.stop.steps={4000 * STEPS}", "--config.checkpoint.every_steps=1024")
    training = run.start(*options)
    training.wait_until(lambda: run.has_checkpoints(1))
    training.send(signal.SIGTERM)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (143, "")
    assert f"run folder: {run.folder}" in outcome.stdout.splitlines()  # from the start on
    (line,) = [line for line in outcome.stdout.splitlines() if line.startswith("resume:")]
    saved, command = run.newest(), line.removeprefix("resume:").strip()
    shorter = f"{command} --config.stop.steps={saved + STEPS}"
    done = subprocess.run(shorter, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"resumed from the checkpoint at step {saved:,}" in done.stdout
    assert run.newest() == saved + STEPS
    assert f"evaluate --workdir={run.folder}" in done.stdout


def test_a_signal_before_anything_has_begun(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('reading', flush=True)\ntime.sleep(60)\n")
    run = Run(tmp_path / "run", config=str(tmp_path / "slow.py"))
    training = run.start()
    training.wait_until_it_says("reading")
    training.send(signal.SIGTERM)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (143, "")
    assert outcome.seconds < GRACE
    assert not run.folder.exists()
