"""Replay with a full ring, priorities and hindsight that SIGKILL ends in the middle goes on bit for bit."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.algorithms.tiny import LENGTH, STEPS
from tests.faults.harness import Run, differences

pytestmark = pytest.mark.slow

HINDSIGHT = {
    "env__name": "jaxrl:BitFlip(bits=3)",
    "network__encoder": "joint",
    "learner__prioritised": True,
    "learner__hindsight": "future",
}
SIZE = 2 * LENGTH  # rows of each environment that the ring holds, as its capacity says
SAVED, END = 4 * STEPS, 40 * STEPS  # twice the ring at the first checkpoint


def count_of(run: Run) -> int:
    """Rows of each environment in the ring of a run's newest checkpoint."""
    return int(run.final()[1]["memory/count"])


@pytest.mark.parametrize(("algorithm", "fields"), [("dqn", HINDSIGHT), ("sac", {})], ids=["dqn", "sac"])
def test_killed_with_a_full_ring_it_goes_on_bitwise(
    algorithm: str, fields: dict[str, object], tmp_path: Path
) -> None:
    config = tmp_path / "config.py"
    config.write_text(
        "from tests.algorithms.tiny import config_fields\n\n\n"
        "def get_config():\n"
        f"    c = config_fields({algorithm!r}, **{fields!r})\n"
        f"    c.stop.steps = {END}\n"
        f"    c.checkpoint.every_steps = {SAVED}\n"
        "    return c\n"
    )
    straight, run = (Run(tmp_path / name, config=str(config)) for name in ("straight", "killed"))
    outcome = straight.train()
    assert (outcome.code, outcome.stderr) == (0, "")
    training = run.start()
    training.wait_until(lambda: max(run.checkpoints, default=0) >= SAVED)
    assert training.kill().code == 128 + signal.SIGKILL
    assert SAVED <= run.newest() < straight.newest() == END
    assert count_of(run) == SIZE
    outcome = run.train()
    assert (outcome.code, outcome.stderr) == (0, "")
    assert "resumed from the checkpoint" in outcome.stdout
    assert count_of(run) == SIZE
    assert any(name.startswith("memory/tree/") for name in run.final()[1])
    assert differences(run, straight) == []
