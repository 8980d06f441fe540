"""Signals at random moments of runs, populations and searches: the rows are those of undisturbed ones.

A part of the campaign, `make test-faults`; `JAXRL_FAULTS_INTERRUPTIONS=3` sends fewer to each kind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import CONFIG, FINDINGS, GRACE, ROOT
from tests.faults.tiny import STEPS

SIGNALS = int(os.environ.get("JAXRL_FAULTS_INTERRUPTIONS", "10"))
SEED = int(os.environ.get("JAXRL_FAULTS_SEED", "0"))
PATIENCE = 300.0  # seconds
MOST_STARTS = 4 * SIGNALS
# Long enough for every start to train for a while, with an evaluation every second iteration.
SETTINGS = (
    f"--config.stop.steps={400 * STEPS}",
    f"--config.evaluate.every_steps={2 * STEPS}",
    f"--config.checkpoint.every_steps={8 * STEPS}",
)
KINDS = {
    "run": ("train", f"--config={CONFIG}", *SETTINGS),
    "population": ("train", f"--config={CONFIG}", "--config.population.seeds=3", *SETTINGS),
    "processes": ("search", CONFIG, "--trials=3", "--verify=0", "--score=mean", "--jobs=1", *SETTINGS),
    "one program": ("search", CONFIG, "--trials=3", "--verify=0", "--score=mean", *SETTINGS),
}

pytestmark = pytest.mark.faults


def start(kind: str, folder: Path) -> subprocess.Popen[str]:
    arguments = list(KINDS[kind])
    if arguments[0] == "search":
        space = folder.with_name("space.yaml")
        space.write_text("ppo.learning_rate: {log: [1e-4, 1e-2]}\n")
        arguments.append(f"--space={space}")
    with folder.with_name("output.txt").open("a") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "jaxrl", *arguments, f"--workdir={folder}"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )


def rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of every run below the folder, without times and the state of machine and checkpoints."""
    found = {}
    for file in sorted(folder.rglob("metrics.jsonl")):
        read = [json.loads(line) for line in file.read_text().splitlines()]
        timed = ("time", "host/", "device/", "checkpoint/")
        kept = [{name: x for name, x in row.items() if not name.startswith(timed)} for row in read]
        found[str(file.relative_to(folder))] = [row for row in kept if row.keys() - {"step"}]
    return found


def scores(folder: Path) -> list[Any]:
    file = folder / "trials.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return sorted((line["number"], line["score"]) for line in lines if line["state"] != "running")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_after_signals_at_random(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rng = random.Random(f"{kind} {SEED}")
    whole, stopped = tmp_path / "whole" / "run", tmp_path / "stopped" / "run"
    for folder in (whole, stopped):
        folder.parent.mkdir()
    began = time.monotonic()
    assert start(kind, whole).wait(PATIENCE) == 0, (whole.parent / "output.txt").read_text()
    usual = time.monotonic() - began
    sent: list[int] = []
    longest, code, starts = 0.0, -1, 0
    while code != 0 and starts < MOST_STARTS:
        process, starts = start(kind, stopped), starts + 1
        if len(sent) < SIGNALS:
            try:
                code = process.wait(rng.uniform(0.1, 0.7) * usual)
            except subprocess.TimeoutExpired:
                sent.append(rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)))
                process.send_signal(sent[-1])
                at = time.monotonic()
                code = process.wait(PATIENCE)
                longest = max(longest, time.monotonic() - at)
                assert code in (0, 128 + sent[-1], -sent[-1]), (stopped.parent / "output.txt").read_text()
        else:
            code = process.wait(PATIENCE)
    assert code == 0, (stopped.parent / "output.txt").read_text()
    lost = [name for name, expected in rows(whole).items() if rows(stopped).get(name) != expected]
    request.config.stash.setdefault(FINDINGS, {})[kind] = {
        "tried": len(sent),
        "survived": 0 if lost else len(sent),
        "lost": len(sent) if lost else 0,
        "starts": starts,
        "longest seconds": round(longest, 1),
    }
    assert not lost
    assert scores(stopped) == scores(whole)
    assert longest < 2 * GRACE
