"""Runs with a full ring that SIGKILL ends in the middle go on bit for bit: of steps, and of sequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.algorithms.tiny import LENGTH, STEPS
from tests.faults.harness import Run, differences, killed_and_resumed

pytestmark = pytest.mark.long

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


# Priorities and hindsight; carries; rows as those of DQN. Each resumes in one process in test_conformance.py;
# tests/faults/test_kills.py kills a run.
@pytest.mark.parametrize(
    ("algorithm", "fields"),
    [("dqn", HINDSIGHT), ("r2d2", {}), ("sac", {})],
    ids=["dqn", "r2d2", "sac"],
)
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
    outcome = killed_and_resumed(straight, run, lambda: max(run.checkpoints, default=0) >= SAVED)
    # The ring was full when it was saved.
    saved = [f"resumed from the checkpoint at step {step:,}" for step in range(SAVED, END, SAVED)]
    assert any(said in outcome.stdout for said in saved)
    if algorithm != "r2d2":  # It counts sequences, and draws them evenly.
        assert count_of(run) == SIZE
        assert any(name.startswith("memory/tree/") for name in run.final()[1])
    assert differences(run, straight) == []
