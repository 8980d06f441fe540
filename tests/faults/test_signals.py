"""Signals while there is nothing to save, two trainers in one folder, and a NaN: what the user sees."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.harness import GRACE, ROOT, Run
from tests.faults.tiny import STEPS

# What compiles soon, as it remembers nothing.
SIMPLE = ("--config.network.core=none", "--config.normalize.rewards=false")
# Of minutes; with normalised observations the first would make no update.
LONG_ITERATION = (
    *SIMPLE,
    "--config.ppo.num_epochs=10000",
    "--config.ppo.rollout_length=4096",
    "--config.normalize.observations=false",
)
FAULTY = (*SIMPLE, "--config.env.name=tests.faults.environments:Faulty(step=44,length=1000)")


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


# In one process: tests/runs/test_folder.py and tests/runs/test_signals.py.
@pytest.mark.long
def test_one_folder_has_one_trainer_and_a_second_signal_ends_it(run: Run) -> None:
    first = run.start(*LONG_ITERATION)
    first.wait_until(first.is_training)
    before = {path: path.stat().st_mtime_ns for path in run.folder.iterdir() if path.is_file()}
    second = run.train(*LONG_ITERATION)
    assert (second.code, second.stdout) == (2, "")
    assert f"`--workdir` (={run.folder}) is in use by process {first.process.pid} on " in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before

    first.send(signal.SIGTERM)
    time.sleep(1.0)
    assert first.process.poll() is None  # the iteration in flight is finished first
    first.send(signal.SIGINT)
    outcome = first.ended()
    assert (outcome.code, outcome.stderr) == (130, "")
    assert outcome.seconds < 1.0


# In one process: tests/training/test_nonfinite.py.
@pytest.mark.long
def test_a_nan_halts_with_one_line_and_a_report(run: Run) -> None:
    # In the 6th iteration; the checkpoint before it is of the 4th.
    outcome = run.train(*FAULTY, "--config.env.stagger=false")
    assert outcome.code == 1
    message = "nan in reward, time step 3 of environment 0, in the rollout of iteration 6"
    assert outcome.stderr == f"error: {message}\n"
    report = json.loads((run.folder / "nonfinite.json").read_text())
    assert (report["iteration"], report["quantity"], report["value"]) == (6, "reward", "nan")
    assert run.newest() == 5 * STEPS  # the state that led to it
    assert run.damages() == []
    assert not (run.folder / "summary.json").exists()


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


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_anything_has_begun(tmp_path: Path, signum: int) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('reading', flush=True)\ntime.sleep(60)\n")
    run = Run(tmp_path / "run", config=str(tmp_path / "slow.py"))
    training = run.start()
    training.wait_until_it_says("reading")
    training.send(signum)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (128 + signum, "")
    assert outcome.seconds < GRACE
    assert not run.folder.exists()
