"""`jaxrl play`: the rules are the environment's, records can be checked, a terminal is needed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envs.native.platformer.attempt import Attempt
from envs.native.platformer.dataset import read_levels
from envs.native.platformer.solver import solves
from jaxrl.commands.play import main, pressed, record_of

LEVEL = read_levels("", "train", "simple")[0]


def test_a_solution_solves() -> None:
    attempt = Attempt(LEVEL, 100)
    for action in LEVEL.solution:
        assert not attempt.over
        attempt.step(int(action))
    assert attempt.over
    assert attempt.success
    assert attempt.switch_is_on
    line = json.loads(record_of(attempt))
    assert line == {
        "digest": LEVEL.digest,
        "category": "simple",
        "actions": LEVEL.solution,
        "success": True,
    }
    assert solves(LEVEL, line["actions"])


def test_time_runs_out() -> None:
    attempt = Attempt(LEVEL, 3)
    for _ in range(3):
        attempt.step(1)
    assert attempt.over
    assert not attempt.success


def test_the_picture_shows_the_level() -> None:
    attempt = Attempt(LEVEL, 100)
    lines = attempt.picture()
    column, row = LEVEL.place_of("S")
    assert lines[row][2 * column : 2 * column + 2] == "@@"
    column, row = LEVEL.place_of("E")
    assert lines[row][2 * column : 2 * column + 2] == "[]"
    assert {len(line) for line in lines} == {2 * len(LEVEL.rows[0])}


def test_keys() -> None:
    assert pressed("left", 1, 0) == (0, 0)
    assert pressed("down", 2, 3) == (1, 3)
    assert pressed("up", 2, 0) == (2, 8)
    assert pressed("z", 2, 1) == (2, 1)


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--category=easy"], "category (='easy') must be one of all, simple", 2),
        (["--levels=nowhere"], "levels (='nowhere') is no folder of levels", 2),
        (["--level=99"], "`--level` (=99) must be less than 12", 2),
        (["--speed=0"], "speed", 2),
        (["--record=nowhere/file"], "`--record` (='nowhere/file') cannot be written", 2),
        ([], "needs a terminal", 1),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    message: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["jaxrl play", *arguments]) == code
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_in_a_terminal(tmp_path: Path) -> None:
    """Plays to the right until the first step is recorded, then leaves."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    record = tmp_path / "attempts.jsonl"
    command = [sys.executable, "-m", "jaxrl", "play", "--speed=60", f"--record={record}"]
    environment = os.environ | {"TERM": "xterm", "LINES": "30", "COLUMNS": "100"}
    done = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 100
    while b"steps" not in shown and time.monotonic() < deadline:
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 4096)
    os.write(ours, b"q")
    while done.poll() is None and time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    assert done.wait(60) == 0, shown
    os.close(ours)
    line = json.loads(record.read_text().splitlines()[0])
    assert set(line["actions"]) == {"1"}
    assert line["digest"] == LEVEL.digest
