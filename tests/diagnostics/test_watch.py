"""`jaxrl watch`: what it shows of runs, and that quitting leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
import rich.console

from jaxrl.commands.watch import main
from jaxrl.diagnostics.live_run import LiveRun, Watcher
from jaxrl.diagnostics.live_screen import LiveScreen
from jaxrl.reporting.writers import JsonlWriter
from tests.commands.refusals import refused
from tests.comparison.run_folders import STEPS, write_run

ROOT = Path(__file__).parents[2]


def render(runs: list[LiveRun], width: int = 100, height: int = 30) -> str:
    stream = io.StringIO()
    console = rich.console.Console(file=stream, width=width, height=height, color_system=None)
    console.print(LiveScreen(runs, "cpu 50% of 2 cores"))
    return stream.getvalue()


def followed(path: Path, seconds_later: float = 2.0) -> LiveRun:
    run = LiveRun(str(path), now=lambda: time.time() + seconds_later)
    run.poll()
    return run


def test_a_run_at_work(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0, 20.0, 40.0, 80.0], finished=False)
    run = followed(tmp_path)
    assert (run.progress.steps, run.progress.total_steps, run.progress.fraction()) == (
        4 * STEPS,
        4 * STEPS,
        1.0,
    )
    shown = render([run])
    assert "gymnax:CartPole-v1  seed 0" in shown
    assert "training" in shown
    assert "4,000 of 4,000 steps" in shown
    assert re.search(r"0:(0[6-9]|[1-5]\d) elapsed", shown)  # 4 s at the latest row, at least 2 s ago
    assert "80.00  ▁▂▄█" in shown
    assert "40.00  ▁▂▄█" in shown  # of training: half of these
    assert "5.0k" in shown
    assert "host 200 MB" in shown
    assert re.search(r"last row \d+\.?\d* s ago", shown)
    assert "cpu 50% of 2 cores   q quits" in shown


def test_a_dotted_line_stands_where_a_stage_ends(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0, 20.0], finished=False)
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.resume_from(2000)
    for step, stage in ((3000, 1.0), (4000, 2.0)):
        writer.write(step, {"episode/return": 5.0 * step / 1000, "curriculum/stage": stage})
    writer.close()
    shown = render([followed(tmp_path)])
    assert "20.00  ▁▃▆┊█" in shown
    assert "20.00  ▁█" in shown  # the evaluations came before


def test_one_run_shows_the_numbers_of_its_algorithm(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0, 20.0], finished=False)
    config = json.loads((tmp_path / "config.json").read_text()) | {"algorithm": "sarsa"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.resume_from(2000)
    numbers = {"loss/value": 0.25, "sarsa/td_error": 12.5, "sarsa/updates": 1234.0, "grad/norm/core": 77.0}
    writer.write(3000, {"time/steps_per_second": 5000.0, "time/seconds": 3.0} | numbers)
    writer.close()
    run = followed(tmp_path)
    shown = render([run])
    assert re.search(r"value +0\.2500 +td error +12\.50", shown)
    assert "1,234 updates" in shown
    assert "77.0" not in shown
    # Several runs leave no room for numbers.
    crowded = render([run, run], height=24)
    assert "td error" not in crowded
    assert crowded.count("5.0k") == 2


def test_a_run_that_resumes_and_ends(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0, 20.0], finished=False)
    run = followed(tmp_path)
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.resume_from(2000)
    writer.write(3000, {"eval/return": 30.0})
    writer.close()
    run.poll()
    assert (run.progress.latest["eval/return"], run.progress.phase) == (30.0, "training")
    (tmp_path / "summary.json").write_text('{"steps": 3000, "stop_reason": "steps"}')
    run.poll()
    assert run.progress.phase == "done: steps"
    # The same folder trains on with a larger budget.
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.resume_from(3000)
    writer.write(4000, {"eval/return": 40.0})
    writer.close()
    run.poll()
    assert run.progress.phase == "training"


def test_a_saved_state_is_no_run_that_starts(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0], finished=False)
    (tmp_path / "metrics.jsonl").unlink()
    assert followed(tmp_path).progress.phase == "starting"
    (tmp_path / "checkpoints/512").mkdir(parents=True)
    assert followed(tmp_path).progress.phase == "saved"


def test_a_quiet_run(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0, 20.0], finished=False)
    assert followed(tmp_path, seconds_later=600).progress.phase == "quiet for 10 min 00 s"


def test_a_process_on_this_machine(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0], finished=False)
    lock = tmp_path / ".lock"
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    run = followed(tmp_path)
    share, memory = run.host
    assert share is not None
    assert memory is not None
    assert 1e7 < memory < 1e11
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    lock.write_text(f"process {gone.pid} on {socket.gethostname()}")
    assert followed(tmp_path).progress.phase == "stopped"
    lock.write_text(f"process {gone.pid} on elsewhere")
    assert followed(tmp_path).progress.phase == "training"


def test_damage_is_said_and_survived(tmp_path: Path) -> None:
    write_run(tmp_path, [10.0], finished=False)
    whole = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text("{")
    run = followed(tmp_path)
    assert "config.json is damaged" in render([run])
    (tmp_path / "config.json").write_text(whole)
    run.poll()
    assert run.problem == ""


def test_many_runs_take_a_line_each(tmp_path: Path) -> None:
    runs = [followed(write_run(tmp_path / f"{i:02}", [1.0, 2.0], i, finished=i > 0)) for i in range(12)]
    shown = render(runs, width=110, height=10)
    lines = shown.splitlines()
    assert len(lines) <= 10
    assert "00" in lines[1]  # what trains comes first
    assert "training" in lines[1]
    assert "and 5 more" in shown
    for width in (40, 60, 80):
        assert max(map(len, render(runs, width).splitlines())) <= width
        assert max(map(len, render(runs[:2], width).splitlines())) <= width


def test_a_narrow_table_keeps_what_tells_runs_apart(tmp_path: Path) -> None:
    folder = tmp_path / ("a-long-name-of-a-study-" * 3)
    names = [f"ppo_memory-learning_rate=0.00{i}-core=lstm-seed={i}" for i in range(10)]
    runs = [followed(write_run(folder / name, [1.0, 2.0], finished=False)) for name in names]
    lines = render(runs, width=80, height=14).splitlines()[:11]
    assert lines[0].startswith("run in /")
    assert max(map(len, lines)) <= 80
    for i, line in enumerate(lines[1:]):
        assert line.startswith("ppo_me")
        assert f"-seed={i} " in line


def test_runs_of_several_folders_keep_theirs(tmp_path: Path) -> None:
    runs = [followed(write_run(tmp_path / f"{i}" / "run", [1.0], finished=False)) for i in range(10)]
    lines = render(runs, width=80, height=14).splitlines()
    assert [line.split()[0] for line in lines[1:11]] == [f"{i}/run" for i in range(10)]


def test_runs_that_begin_later_appear(tmp_path: Path) -> None:
    watcher = Watcher([str(tmp_path)])
    watcher.look()
    assert watcher.runs == []
    assert "no runs yet" in render(watcher.runs)
    write_run(tmp_path / "new", [1.0])
    watcher.look()
    assert [Path(run.path).name for run in watcher.runs] == ["new"]


def test_a_pipe_gets_a_line_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", [1.0, 2.0])
    write_run(tmp_path / "b", [1.0, 4.0], 1)
    assert main(["jaxrl watch", str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"{tmp_path / 'a'}, gymnax:CartPole-v1 seed 0, done: steps, 100.0%, 2,000 steps, 5.0k"
    )
    assert "eval return 4.000" in second
    assert "\x1b" not in first


def test_episodes_that_were_cut_off_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, [1.0, 2.0], finished=False)
    said = "3 evaluated episodes were cut off"
    with contextlib.closing(JsonlWriter(tmp_path / "metrics.jsonl")) as writer:
        writer.write(2 * STEPS, {"eval/return": -250.0, "eval/cut_off": 3.0})
    assert said in render([followed(tmp_path)])
    assert main(["jaxrl watch", str(tmp_path)]) == 0
    assert said in capsys.readouterr().out
    with contextlib.closing(JsonlWriter(tmp_path / "metrics.jsonl")) as writer:
        writer.write(2 * STEPS, {"eval/return": -250.0})
    assert said not in render([followed(tmp_path)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "no folder is named"), (["nowhere"], "is no folder"), ([".", "--interval=0"], "interval")],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "watch", *arguments)


def read_until(terminal: int, wanted: bytes, seconds: float = 30) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # The other end is closed.
                break
    assert wanted in seen, seen[-500:]
    return seen


# The terminal must be the process's own, or Ctrl-C would reach nobody.
WATCH = """
import fcntl, sys, termios
from jaxrl.commands.watch import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(main(["jaxrl watch", sys.argv[1]]))
"""


@pytest.mark.parametrize(
    "how", ["q", *(pytest.param(how, marks=pytest.mark.slow) for how in ("ctrl-c", "SIGTERM"))]
)
def test_quitting_restores_the_terminal(tmp_path: Path, how: str) -> None:
    write_run(tmp_path / "run", [1.0, 2.0], finished=False)
    terminal, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    process = subprocess.Popen(
        [sys.executable, "-c", WATCH, str(tmp_path)],
        cwd=ROOT, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color"},
    )  # fmt: skip
    try:
        shown = read_until(terminal, b"q quits")
        assert b"\x1b[?1049h" in shown  # a screen of its own
        assert not termios.tcgetattr(inner)[3] & termios.ICANON
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            os.write(terminal, {"q": b"q", "ctrl-c": b"\x03"}[how])
        left = read_until(terminal, b"\x1b[?1049l")
        assert b"Traceback" not in left
        assert process.wait(10) == 0
        assert termios.tcgetattr(inner) == before
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(inner)
