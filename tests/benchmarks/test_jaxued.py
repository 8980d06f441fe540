"""What `benchmarks/jaxued.py` makes of seconds, and the stand-in that its runner gives JaxUED for wandb."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "benchmarks/peers/jaxued_runner.py"
# As the examples of JaxUED use it, which read their settings from `wandb.config`.
EXAMPLE = """
import sys, wandb
import library
wandb.init(config={"turns": int(sys.argv[1])}, project="p")
wandb.define_metric("x", step_metric="y")
for turn in range(wandb.config["turns"]):
    wandb.log({"x": wandb.Video(library.FRAMES, fps=4)})
    print("turn", turn)
"""


def test_a_turn_ends_where_the_example_logs_and_the_next_waits(tmp_path: Path) -> None:
    for name, text in (("examples/one.py", EXAMPLE), ("src/library.py", "FRAMES = []")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    command = [sys.executable, str(RUNNER), str(tmp_path), "one.py", "5"]
    # Two lines are two turns after the first; then the end of the input ends it, in the third.
    done = subprocess.run(command, input="\n\n", capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("turn")] == ["turn 0", "turn 1"]
    found = [json.loads(line.partition(": ")[2]) for line in lines if not line.startswith("turn")]
    assert len(found) == 3
    assert all(outcome["seconds"] >= 0 for outcome in found)
    assert "jax" in found[0]["versions"]


def test_an_evaluation_and_an_update_are_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import jaxued

    # 3 + 1 updates and an evaluation in 9 s, one and an evaluation in 3 s: 2 s an update.
    assert jaxued.rates(6000, ours=4.0, many=9.0, one=3.0) == (1500.0, 1000.0, 1.5)
