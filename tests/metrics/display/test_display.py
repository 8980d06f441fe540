"""The display: progress arithmetic, plain lines, and a live screen that fits its terminal."""

from __future__ import annotations

import io
import logging
import re
import time

import pytest
import rich.console

from jaxrl.metrics import text
from jaxrl.metrics.display.board import Board, Curve
from jaxrl.metrics.display.screen import Screen
from jaxrl.metrics.writers import Console

ROW = {
    "steps": 50_000,
    "episode/return": 123.4,
    "episode/length": 120.0,
    "time/steps_per_second": 25_340.0,
    "time/compile_seconds": 3.2,
    "loss/policy": -0.0123,
    "loss/value": 12.5,
    "loss/entropy": 0.65,
    "ppo/approx_kl": 0.0041,
    "ppo/clip_fraction": 0.12,
    "ppo/learning_rate": 2.5e-4,
    "ppo/updates": 1152.0,
    "grad/norm": 0.4,
}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"

    def write(self, line: str) -> int:
        return super().write(line.encode("ascii").decode("ascii"))


def make_board(total_steps: int | None, total_seconds: float | None) -> tuple[Board, list[float]]:
    now = [0.0]
    return Board("title", "subtitle", total_steps, total_seconds, now=lambda: now[0]), now


class TestBoard:
    def test_remaining_time_from_the_pace_between_rows(self) -> None:
        board, now = make_board(1000, None)
        assert board.remaining() is None
        for seconds, steps in [(10.0, 100), (20.0, 300)]:
            now[0] = seconds
            board.update(steps, {})
        # 200 steps in 10 s: 700 more take 35 s. Compiling, before the first row, is no part of the pace.
        assert board.remaining() == 35.0
        now[0] = 25.0
        assert board.remaining() == 30.0
        assert board.fraction() == 0.3

    def test_a_budget_in_seconds(self) -> None:
        board, now = make_board(None, 60.0)
        now[0] = 15.0
        assert (board.fraction(), board.remaining()) == (0.25, 45.0)

    def test_the_budget_that_ends_first_counts(self) -> None:
        board, now = make_board(1000, 60.0)
        now[0] = 10.0
        board.update(900, {"time/steps_per_second": 100.0})
        assert board.remaining() == 1.0
        assert board.fraction() == 0.9

    def test_no_budget(self) -> None:
        board, _ = make_board(None, None)
        board.update(10, {"time/steps_per_second": 5.0})
        assert board.fraction() is None
        assert board.remaining() is None

    def test_a_resumed_run_starts_where_it_was(self) -> None:
        board, now = make_board(1000, None)
        board.start_at(500)
        assert board.fraction() == 0.5
        now[0] = 4.0
        board.update(600, {"time/seconds": 64.0})
        now[0] = 5.0
        assert board.elapsed() == 65.0


class TestCurve:
    def test_sparkline_of_few_points(self) -> None:
        curve = Curve()
        for value in (0.0, 1.0, float("nan"), 2.0):
            curve.append(value)
        assert curve.sparkline(10, "abc") == "abc"

    def test_sparkline_averages_into_its_width(self) -> None:
        curve = Curve()
        for value in (0.0, 2.0, 4.0, 6.0):
            curve.append(value)
        assert curve.sparkline(2, "ab") == "ab"

    def test_constant_and_empty(self) -> None:
        curve = Curve()
        assert curve.sparkline(5, "ab") == ""
        curve.append(3.0)
        curve.append(3.0)
        assert curve.sparkline(5, "ab") == "aa"

    def test_a_long_run_keeps_its_whole_history(self) -> None:
        curve = Curve()
        for i in range(5000):
            curve.append(float(i))
        assert len(curve._points) < 512
        assert curve.sparkline(5, "abcde") == "abcde"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0"),
        (float("nan"), "nan"),
        (0.00025, "2.50e-04"),
        (-0.0123, "-0.0123"),
        (1.5, "1.500"),
        (475.0, "475.0"),
        (-1500.0, "-1,500"),
        (2e6, "2.00e+06"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert text.number(value) == shown


def test_paces_and_durations() -> None:
    assert [text.pace(x) for x in (950.0, 25_340.0, 999_960.0, 1.2e6)] == ["950", "25.3k", "1.00M", "1.20M"]
    assert [text.clock(x) for x in (None, 9.9, 75, 3725)] == ["-:--", "0:09", "1:15", "1:02:05"]
    assert [text.seconds(x) for x in (0.42, 12, 59.7, 200, 7500)] == [
        "0.4 s",
        "12 s",
        "1 min 00 s",
        "3 min 20 s",
        "2 h 05 min",
    ]


class TestPlain:
    def test_lines_are_aligned_and_free_of_escape_codes(self) -> None:
        stream = io.StringIO()
        console = Console("CartPole", "lstm 128", 100_000, stream=stream)
        console.status("compiling the training program")
        console.status("training")
        console.write(50_000, ROW)
        console.status("evaluating")
        console.write(50_000, {"eval/return": 475.0})
        console.status("training")
        console.write(100_000, ROW)
        console.finish({"stop_reason": "steps", "steps": 100_000, "seconds": 4.2, "eval_return": 500.0})
        console.close()
        lines = stream.getvalue().splitlines()
        assert "\x1b" not in stream.getvalue()
        assert lines[:3] == ["CartPole | lstm 128", "compiling the training program", "training"]
        header, first, _, second = lines[3:7]
        assert header.split()[:6] == ["steps", "%", "steps/s", "return", "length", "eval"]
        assert first.split() == (
            ["50,000", "50.0", "25.3k", "123.4", "120.0", "-", "-0.0123", "12.50", "0.6500", "0.0041"]
        )
        assert second.split()[5] == "475.0"
        assert len(header) == len(first) == len(second)
        assert lines[-1] == "done: all steps made, greedy return 500.0, 100,000 steps in 4.2 s"

    def test_a_terminal_that_cannot_redraw_gets_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        stream = Terminal()
        console = Console("title", "subtitle", None, stream=stream)
        console.write(50_000, ROW)
        console.close()
        assert "\x1b" not in stream.getvalue()

    def test_a_terminal_without_unicode(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        stream = AsciiTerminal()
        console = Console("naïve", "µ", 100_000, stream=stream)
        console.status("compiling…")
        console.write(50_000, ROW)
        console.close()
        assert stream.getvalue().startswith("na?ve | ?\ncompiling?\n")

    def test_warnings_are_shown(self) -> None:
        stream = io.StringIO()
        console = Console("title", "subtitle", None, stream=stream)
        logging.getLogger("jaxrl.metrics.writers").warning("disk is %s", "full")
        console.close()
        logging.getLogger("jaxrl.metrics.writers").warning("too late")
        assert stream.getvalue().splitlines()[1:] == ["warning: disk is full"]


class TestLive:
    @pytest.mark.parametrize(("columns", "rows"), [(60, 20), (80, 24), (100, 30), (200, 50)])
    @pytest.mark.parametrize("budget", [(1_000_000, None), (None, 60.0), (1_000_000, 60.0), (None, None)])
    def test_screen_fits_the_terminal(
        self, columns: int, rows: int, budget: tuple[int | None, float | None]
    ) -> None:
        board = Board("gymnax:CartPole-v1  seed 0", "mlp 128, lstm 128; " * 6, *budget)
        for step in range(200):
            board.update(step * 5000, ROW | {"eval/return": float(step), "checkpoint/step": step * 5000.0})
        board.enter("a phase with a very long name " * 4)
        stream = io.StringIO()
        rich.console.Console(file=stream, width=columns, height=rows).print(Screen(board))
        lines = stream.getvalue().splitlines()
        assert max(len(line) for line in lines) <= columns
        assert len(lines) <= rows
        assert "123.4" in stream.getvalue()

    def test_time_goes_on_while_the_main_thread_compiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        stream = Terminal()
        console = Console("title", "subtitle", 1000, stream=stream)
        console.status("compiling the training program")
        deadline = time.monotonic() + 10
        while "compiling the training program… 1 s" not in stream.getvalue():
            assert time.monotonic() < deadline, "the screen stands still"
            time.sleep(0.05)
        console.close()

    def test_no_color(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        colors = r"\x1b\[(?:\d+;)*(?:3\d|9\d)(?:;\d+)*m"
        shown = []
        for name in ("UNRELATED", "NO_COLOR"):
            monkeypatch.setenv(name, "1")
            stream = Terminal()
            console = Console("title", "subtitle", 1000, stream=stream)
            console.write(500, ROW)
            console.close()
            shown.append(re.findall(colors, stream.getvalue()))
        assert shown[0]
        assert not shown[1]

    def test_warnings_and_conclusion_are_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        stream = Terminal()
        console = Console("title", "subtitle", 1000, stream=stream)
        logging.getLogger("jaxrl.metrics.writers").warning("disk is full")
        console.finish({"stop_reason": "return", "eval_return": 481.0})
        console.close()
        assert "warning: disk is full" in stream.getvalue()
        assert "done: target return reached, greedy return 481.0" in stream.getvalue()
