"""Runs whose environments are in worker processes: nothing of them is left, whatever ends the run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from tests.faults.harness import GRACE, Run
from tests.faults.tiny import STEPS


def workers_of(pid: int) -> list[int]:
    """Processes whose parent is `pid`."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def end(run: Run, signum: int) -> None:
    """Starts training, and ends it by a signal once it has saved twice; its workers end as well."""
    before = max(run.checkpoints, default=0)
    training = run.start()
    training.wait_until(lambda: max(run.checkpoints, default=0) >= before + 4 * STEPS)
    workers = workers_of(training.process.pid)
    assert len(workers) == 2
    training.send(signum)
    outcome = training.ended()
    assert (outcome.code, outcome.stderr) == (128 + signum, "")
    assert outcome.seconds < GRACE
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "worker processes are left"
        time.sleep(0.05)


# tests/envs/test_worker_lifetimes.py has workers, tests/programs/test_host_training.py a resume.
@pytest.mark.long
def test_nothing_is_left_and_the_run_goes_on(tmp_path: Path) -> None:
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        pytest.skip("this system does not list child processes")
    shared = set(os.listdir("/dev/shm"))
    run = Run(tmp_path / "run", config="tests/faults/host.py")
    try:
        for signum in (signal.SIGKILL, signal.SIGTERM):
            end(run, signum)
            assert set(os.listdir("/dev/shm")) <= shared
        reached = run.newest()
        final = (reached // STEPS + 5) * STEPS
        assert run.train(f"--config.stop.steps={final}").code == 0
    finally:
        run.end()
    assert run.newest() == final
    steps = [row["step"] for row in run.rows() if "ppo/updates" in row]
    assert steps == sorted(set(steps))
    _, arrays = run.final()
    assert arrays["iteration/"] == final // STEPS
    assert arrays["learner/updates"] == 4 * (final // STEPS - 1)  # the first iteration makes none
    assert all(
        np.isfinite(x).all() for name, x in arrays.items() if name.startswith("learner/policy/params/")
    )
