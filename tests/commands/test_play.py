"""`jaxrl play`: the rules are the environment's, records can be checked, a terminal is needed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxrl.envs.native.platformer.game.record import Attempt, AttemptRecord, RecordError, read_records
from jaxrl.envs.native.platformer.game.terminal import KeyMoves, RecordedMoves, window_of
from jaxrl.envs.native.platformer.level_files import read_levels
from jaxrl.envs.native.platformer.solver import solves
from tests.commands.refusals import refused

LEVEL = read_levels("", "train", "simple")[0]


def line(digest: str = "d", actions: str = "0") -> str:
    return AttemptRecord(digest=digest, category="simple", actions=actions, success=False).line()


def test_a_solution_solves() -> None:
    attempt = Attempt(LEVEL, 100)
    for action in LEVEL.solution:
        assert not attempt.over
        attempt.step(int(action))
    assert attempt.over
    assert attempt.success
    assert attempt.outcome == "solved"


def test_a_record_is_read_back(tmp_path: Path) -> None:
    attempt = Attempt(LEVEL, 100)
    file = tmp_path / "attempts.jsonl"
    records = []
    for action in LEVEL.solution:
        attempt.step(int(action))
        records.append(AttemptRecord.of(attempt))
    file.write_text(records[0].line() + records[-1].line())
    assert json.loads(file.read_text().splitlines()[1]) == {
        "digest": LEVEL.digest,
        "category": "simple",
        "actions": LEVEL.solution,
        "success": True,
    }
    assert read_records(file) == (records[0], records[-1])
    assert solves(LEVEL, read_records(file)[1].actions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no attempt"),
        (b"\xff\n", "is no text"),
        ("{\n", "line 1 is no JSON"),
        (
            line() + "[]\n",
            "line 2 needs digest, category, actions, succ",
        ),
        (line(actions="06"), "line 1: actions must be digits from 0 to 5"),
        ('{"digest": "d", "category": "c", "actions": "1", "success": 1}\n', "line 1 needs digest"),
    ],
)
def test_what_is_no_record(text: str | bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "attempts.jsonl"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RecordError, match=message):
        read_records(file)


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


def test_the_first_key_starts_the_clock() -> None:
    moves = KeyMoves()
    moves.press("z")
    assert moves.action() is None
    moves.press("left")
    assert [moves.action(), moves.action()] == [0, 0]
    moves.press("up")
    assert [moves.action() for _ in range(9)] == [3] * 8 + [0]
    moves.press("down")
    assert moves.action() == 1


def test_a_jump_may_come_first() -> None:
    moves = KeyMoves()
    moves.press("up")
    assert moves.action() == 4


def test_a_recording_ends() -> None:
    moves = RecordedMoves("25")
    moves.press("left")
    assert [moves.action() for _ in range(3)] == [2, 5, None]


@pytest.mark.parametrize(
    ("size", "player", "expected"),
    [
        ((9, 9), (1, 1), ["abcd", "efgh", "ijkl"]),
        ((1, 2), (0, 0), ["ab"]),
        ((1, 2), (2, 3), ["kl"]),
        ((2, 3), (1, 2), ["bcd", "fgh"]),
        ((0, -1), (1, 1), []),
    ],
)
def test_small_terminals_show_what_is_around_the_player(
    size: tuple[int, int], player: tuple[int, int], expected: list[str]
) -> None:
    assert window_of(["abcd", "efgh", "ijkl"], size, player) == expected


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["."], "`GAME` (='.') is a folder; to play a run: --opponent=.", 2),
        (["--category=easy"], "category (='easy') must be one of all, simple", 2),
        (["--levels=nowhere"], "levels (='nowhere') is no folder of levels", 2),
        (["--level=99"], "`--level` (=99) must be less than 12", 2),
        (["--speed=0"], "speed", 2),
        (["--record=nowhere/file"], "`--record` (='nowhere/file') cannot be written", 2),
        (["--replay=nowhere"], "`--replay` (='nowhere') cannot be read: No such file", 2),
        (["--replay=other.jsonl"], "line 2 was played in a level that `--levels` (='train') lacks", 2),
        (["--replay=one.jsonl", "--level=1"], "`--level` (=1) must be less than 1, the number of att", 2),
        (["--replay=one.jsonl", "--record=two.jsonl"], "exclude each other", 2),
        (["--replay=one.jsonl"], "needs a terminal", 1),
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
    Path("one.jsonl").write_text(line(LEVEL.digest))
    Path("other.jsonl").write_text(line(LEVEL.digest) + line("other"))
    assert message in refused(capsys, "play", *arguments, code=code)


class _Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, arguments: list[str], rows: int, columns: int) -> None:
        pty = pytest.importorskip("pty")
        self._ours, theirs = pty.openpty()
        size = {"LINES": str(rows), "COLUMNS": str(columns)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jaxrl", "play", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm"} | size,
        )
        os.close(theirs)
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + 100
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self._read()

    def press(self, keys: bytes) -> None:
        self.shown = b""
        os.write(self._ours, keys)

    def settings(self) -> list[object]:
        """Those of the terminal: whether keys are echoed, and so on."""
        return pytest.importorskip("termios").tcgetattr(self._ours)  # type: ignore[no-any-return]

    def code(self) -> int:
        """The exit code, once the process has ended."""
        deadline = time.monotonic() + 100
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        code = self.process.wait(1)
        os.close(self._ours)
        return code

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):  # the other end is closed
                self.shown += os.read(self._ours, 4096)


@pytest.mark.slow
def test_in_a_terminal(tmp_path: Path) -> None:
    """Runs to the right, leaves, and sees the same again; nothing is kept of a level that nobody played."""
    record = tmp_path / "attempts.jsonl"
    terminal = _Terminal(["--speed=60", f"--record={record}"], rows=30, columns=100)
    terminal.wait_for(b"begin")
    terminal.press(b"n\x1bzd")
    terminal.wait_for(b"@")
    terminal.press(b"Q")
    assert terminal.code() == 0
    (attempt,) = read_records(record)
    assert set(attempt.actions) == {"2"}
    assert attempt.digest == read_levels("", "train", "simple")[1].digest
    with record.open("a") as file:
        file.write(line(LEVEL.digest, LEVEL.solution))
    terminal = _Terminal(["--speed=60", f"--replay={record}"], rows=6, columns=20)
    terminal.wait_for(b"attempt 0")
    terminal.press(b"n")
    terminal.wait_for(b"solved")
    terminal.press(b"n")
    assert terminal.code() == 0


@pytest.mark.slow
def test_an_interrupt_keeps_the_attempt(tmp_path: Path) -> None:
    record = tmp_path / "attempts.jsonl"
    terminal = _Terminal(["--speed=60", f"--record={record}"], rows=30, columns=100)
    terminal.wait_for(b"begin")
    terminal.press(b"a")
    terminal.wait_for(b"\x1b")  # something is drawn
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.code() == 128 + signal.SIGINT
    (attempt,) = read_records(record)
    assert set(attempt.actions) == {"0"}


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_put_the_terminal_back(signum: signal.Signals, tmp_path: Path) -> None:
    record = tmp_path / "attempts.jsonl"
    terminal = _Terminal(["--speed=60", f"--record={record}"], rows=30, columns=100)
    before = terminal.settings()
    terminal.wait_for(b"begin")
    assert terminal.settings() != before
    terminal.press(b"a")
    terminal.wait_for(b"\x1b")  # something is drawn
    terminal.process.send_signal(signum)
    terminal.wait_for(b"\x1b[?1049l")  # back to the screen of the shell
    terminal.process.wait(60)
    assert terminal.settings() == before
    assert terminal.code() == 128 + signum
    assert len(read_records(record)) == 1
