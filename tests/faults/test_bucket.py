"""A run in a bucket: killed in mid-upload, locked, slowed down and refused; it ends as one on a disk does."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from etils import epath

from jaxrl.commands import evaluate, verify_checkpoint
from tests.faults.harness import Run, differences, different_states
from tests.faults.tiny import STEPS
from tests.runs.storage.gcs_server import GcsServer, Request

WORKDIR = "gs://runs/mine"
# Fewer than on a disk: each takes some twenty requests.
CHECKPOINTS = f"--config.checkpoint.every_steps={10 * STEPS}"


@pytest.fixture
def bucket_run(gcs: GcsServer, tmp_path: Path) -> Iterator[Run]:
    run = Run(epath.Path(WORKDIR), CHECKPOINTS, notes=tmp_path / "notes")
    yield run
    gcs.rule = lambda request: None
    run.end()


@pytest.mark.long
def test_killed_in_mid_upload_it_goes_on_bitwise(
    gcs: GcsServer, bucket_run: Run, straight: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    half_written, go_on = threading.Event(), threading.Event()

    def hold(request: Request) -> None:
        """The third object of the second checkpoint."""
        below = request.name.startswith(f"mine/checkpoints/{20 * STEPS}/")
        if request.writes and below and len(gcs.files("runs", f"mine/checkpoints/{20 * STEPS}/")) >= 2:
            half_written.set()
            go_on.wait(60)

    gcs.rule = hold
    training = bucket_run.start()
    training.wait_until(half_written.is_set)

    second = bucket_run.start().ended()
    assert second.code == 2
    assert second.stdout == ""
    assert f"error: `--workdir` (={WORKDIR}) is in use by process {training.process.pid} on " in second.stderr

    training.kill()
    go_on.set()
    gcs.rule = lambda request: None
    assert list(bucket_run.checkpoints) == [10 * STEPS]
    assert len(gcs.files("runs", f"mine/checkpoints/{20 * STEPS}/")) >= 2

    outcome = bucket_run.train()
    assert outcome.code == 0, outcome.stderr
    assert f"resumed from the checkpoint at step {10 * STEPS:,}" in outcome.stdout
    assert f"taking over from process {training.process.pid} on " in outcome.stdout + outcome.stderr
    assert differences(bucket_run, straight) == []
    files = gcs.files("runs", "mine/")
    assert {name.partition("/")[0] for name in files} == {
        *(".run", "checkpoints", "config.json", "metrics.jsonl", "summary.json", "tensorboard", "train.log")
    }
    assert sum(name.startswith("tensorboard/") for name in files) == 2  # one of each start
    assert files["train.log"].count(b"compiled in") == 2
    assert json.loads(files["summary.json"])["steps"] == 40 * STEPS

    assert verify_checkpoint.main(["", f"--workdir={WORKDIR}"]) == 0
    assert "3 intact, 0 damaged" in capsys.readouterr().out
    assert evaluate.main(["", f"--workdir={WORKDIR}", "--episodes=2"]) == 0
    written = [name for name in gcs.files("runs", "mine/") if name.startswith("evaluations/")]
    assert len(written) == 2  # greedy and sampled
    shown = capsys.readouterr().out
    assert all(f"written to {WORKDIR}/{evaluation}" in shown for evaluation in written)


# A disk that refuses: test_storage.py; buckets: tests/runs/storage/.
@pytest.mark.long
def test_a_bucket_that_refuses_for_a_while_costs_a_checkpoint(
    gcs: GcsServer, bucket_run: Run, straight: Run
) -> None:
    """The right to write is lost once the first checkpoint is there, and comes back when that was noticed."""
    refused = threading.Event()
    training = None

    def refuse(request: Request) -> int | None:
        if not request.writes or f"mine/checkpoints/{10 * STEPS}/commit_success.txt" not in gcs.names("runs"):
            return None
        if training is not None and "could not be written" in training.said():
            return None
        refused.set()
        return 403

    gcs.rule = refuse
    training = bucket_run.start()
    outcome = training.ended()
    assert refused.is_set()
    assert outcome.code == 0, outcome.stderr
    said = " ".join(outcome.stdout.split())
    assert f"warning: the checkpoint {WORKDIR}/checkpoints/{20 * STEPS} could not be written: " in said
    assert "Traceback" not in outcome.stdout + outcome.stderr
    assert list(bucket_run.checkpoints) == [10 * STEPS, 30 * STEPS, 40 * STEPS]
    assert bucket_run.damages() == []
    assert differences(bucket_run, straight) == []


@pytest.mark.faults
@pytest.mark.parametrize("every", [50, 20, 5])
def test_a_bucket_that_stumbles_is_asked_again(
    gcs: GcsServer, bucket_run: Run, straight: Run, every: int
) -> None:
    """One request of so many is answered with 503."""
    rng = random.Random(every)
    gcs.rule = lambda request: 503 if rng.random() < 1 / every else None
    # Each failure of a checkpoint's requests costs a second or more; every new best policy is saved, too.
    outcome = bucket_run.start(f"--config.checkpoint.every_steps={20 * STEPS}").ended(400.0)
    gcs.rule = lambda request: None
    assert outcome.code == 0, outcome.stderr
    assert "Traceback" not in outcome.stdout + outcome.stderr
    assert different_states(bucket_run, straight) == []
    assert differences(bucket_run, straight) == []


@pytest.mark.faults
def test_killed_anywhere_it_goes_on_bitwise(gcs: GcsServer, tmp_path: Path, straight: Run) -> None:
    """Killed at each of many requests, over several runs; what goes on is always the same run."""
    rng = random.Random(0)
    kills = 0
    for number in range(4):
        gcs.buckets["runs"].clear()
        run = Run(epath.Path(WORKDIR), CHECKPOINTS, notes=tmp_path / f"{number}")
        for _ in range(8):
            reached, go_on = threading.Event(), threading.Event()
            count, at = 0, rng.randrange(5, 150)

            def hold(request: Request, at: int = at, reached: threading.Event = reached, go_on=go_on) -> None:
                nonlocal count
                count += 1
                if count >= at:
                    reached.set()
                    go_on.wait(60)

            gcs.rule = hold
            training = run.start()
            killed = training.comes_to(reached.is_set)
            if killed:
                training.kill()
                kills += 1
            go_on.set()
            gcs.rule = lambda request: None
            assert run.damages() == []
        outcome = run.train()
        assert outcome.code == 0, outcome.stderr
        assert different_states(run, straight) == []
    print(f"{kills} kills in mid-request")
    assert kills >= 16
