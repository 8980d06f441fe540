"""The display: progress arithmetic, plain lines, and a live panel that fits its terminal."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import select
import termios
import time

import pytest
import rich.console

from jaxrl.config import text
from jaxrl.reporting.display.console import Console
from jaxrl.reporting.display.panel import RunPanel
from jaxrl.reporting.display.progress import History, RunProgress

ROW = {
    "steps": 50_000,
    "episode/return": 123.4,
    "episode/length": 120.0,
    "time/steps_per_second": 25_340.0,
    "time/seconds_per_iteration": 0.0808,
    "host/cpu_utilization": 0.873,
    "host/peak_memory_bytes": 939e6,
    "device/utilization": 0.42,
    "device/peak_memory_bytes": 4.1e9,
    "time/compile_seconds": 3.2,
    "loss/policy": -0.0123,
    "loss/value": 12.5,
    "loss/entropy": 0.65,
    "ppo/approx_kl": 0.0041,
    "ppo/explained_variance": 0.4567,
    "ppo/learning_rate": 2.5e-4,
    "ppo/updates": 1152.0,
    "grad/norm": 0.4,
}

HIGHLIGHTS = (
    ("loss/policy", "policy loss"),
    ("loss/value", "value loss"),
    ("loss/entropy", "entropy"),
    ("ppo/approx_kl", "approx. KL"),
    ("ppo/explained_variance", "explained variance of returns"),
)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"

    def write(self, line: str) -> int:
        return super().write(line.encode("ascii").decode("ascii"))


def make_progress(total_steps: int | None, total_seconds: float | None) -> tuple[RunProgress, list[float]]:
    now = [0.0]
    return RunProgress("title", "subtitle", total_steps, total_seconds, now=lambda: now[0]), now


class TestProgress:
    def test_remaining_time_from_the_pace_between_rows(self) -> None:
        progress, now = make_progress(1000, None)
        assert progress.remaining() is None
        for seconds, steps in [(10.0, 100), (20.0, 300)]:
            now[0] = seconds
            progress.update(steps, {})
        # 200 steps in 10 s: 700 more take 35 s. Compiling, before the first row, is no part of the pace.
        assert progress.remaining() == 35.0
        now[0] = 25.0
        assert progress.remaining() == 30.0
        assert progress.fraction() == 0.3

    def test_a_budget_in_seconds(self) -> None:
        # It counts training alone: neither the compilation before it nor an evaluation.
        progress, now = make_progress(None, 60.0)
        now[0] = 15.0
        assert (progress.fraction(), progress.remaining()) == (0.0, 60.0)
        progress.update(100, {"time/budget_seconds": 9.0, "time/seconds": 15.0})
        progress.enter("training")
        now[0] = 21.0
        assert (progress.fraction(), progress.remaining()) == (0.25, 45.0)
        progress.update(200, {"time/budget_seconds": 15.0})
        progress.enter("evaluating")
        now[0] = 30.0
        assert progress.fraction() == 0.25

    def test_the_budget_that_ends_first_counts(self) -> None:
        progress, now = make_progress(1000, 60.0)
        now[0] = 10.0
        progress.update(900, {"time/steps_per_second": 100.0, "time/budget_seconds": 10.0})
        assert progress.remaining() == 1.0
        assert progress.fraction() == 0.9

    def test_no_budget(self) -> None:
        progress, _ = make_progress(None, None)
        progress.update(10, {"time/steps_per_second": 5.0})
        assert progress.fraction() is None
        assert progress.remaining() is None

    def test_rows_of_another_process_carry_their_own_times(self) -> None:
        progress, now = make_progress(1000, None)
        now[0] = 100.0  # the run started at 70, long after the display
        progress.update(100, {"time/seconds": 10.0}, at=80.0)
        progress.update(300, {"time/seconds": 20.0}, at=90.0)
        # The row of 20 s was logged 10 s ago; 200 steps in 10 s, so 700 more take 35 s from that row on.
        assert progress.elapsed() == 30.0
        assert progress.remaining() == 25.0
        progress.finish("stopped", at=90.0)
        assert progress.elapsed() == 20.0
        assert progress.remaining() is None

    def test_a_resumed_run_starts_where_it_was(self) -> None:
        progress, now = make_progress(1000, None)
        progress.start_at(500)
        assert progress.fraction() == 0.5
        now[0] = 4.0
        progress.update(600, {"time/seconds": 64.0})
        now[0] = 5.0
        assert progress.elapsed() == 65.0


class TestHistory:
    def test_sparkline_of_few_points(self) -> None:
        history = History()
        for value in (0.0, 1.0, float("nan"), 2.0):
            history.append(value)
        assert history.sparkline(10, "abc") == "abc"

    def test_sparkline_averages_into_its_width(self) -> None:
        history = History()
        for value in (0.0, 2.0, 4.0, 6.0):
            history.append(value)
        assert history.sparkline(2, "ab") == "ab"

    def test_constant_and_empty(self) -> None:
        history = History()
        assert history.sparkline(5, "ab") == ""
        history.append(3.0)
        history.append(3.0)
        assert history.sparkline(5, "ab") == "aa"

    def test_a_long_run_keeps_its_whole_history(self) -> None:
        history = History()
        for i in range(5000):
            history.append(float(i))
        assert len(history._points) < 512
        assert history.sparkline(5, "abcde") == "abcde"

    def test_marks_stay_between_their_values_while_points_are_merged(self) -> None:
        history = History()
        history.mark()  # before any value: no line
        for i in range(3000):
            if i in (600, 2400):
                history.mark()
            history.append(float(i))
        assert history.sparkline(7, "abcde") == "a┊bcd┊e"
        assert history.sparkline(4, "abcd") == "abcd"  # no room

    def test_a_change_of_stage_is_a_mark_in_every_curve(self) -> None:
        progress, _ = make_progress(1000, None)
        rows = ((1, 1), (1, 1), (2, 1), (2, 1), (2, 2), (2, 2))
        for step, (stage, curriculum) in enumerate(rows):
            row = {"episode/return": float(step), "stage": stage, "curriculum/stage": curriculum}
            progress.update(step, row)
            progress.update(step, {"eval/return": 1.0})
        assert progress.histories["episode/return"].sparkline(20, "abcdef") == "ab┊cd┊ef"
        assert progress.histories["eval/return"].sparkline(20, "a") == "aa┊aa┊aa"


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


def test_paces_sizes_and_durations() -> None:
    assert [text.pace(x) for x in (950.0, 25_340.0, 999_960.0, 1.2e6)] == ["950", "25.3k", "1.00M", "1.20M"]
    assert [text.size(x) for x in (None, 950, 12_340, 6e6, 999.6e6, 1.3e9)] == (
        ["-", "950 B", "12.3 kB", "6.00 MB", "1000 MB", "1.30 GB"]
    )
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
        console = Console("CartPole", "lstm 128", 100_000, highlights=HIGHLIGHTS, stream=stream)
        console.status("compiling the training program")
        console.status("training")
        console.write(50_000, ROW)
        console.status("evaluating")
        console.write(50_000, {"eval/return": 475.0})
        console.status("training")
        console.write(100_000, ROW)
        console.finish(
            {"stop_reason": "steps", "steps": 100_000, "seconds": 4.2}
            | {"eval_return": 500.0, "eval_mode": "greedy", "eval_returns": {"greedy": 500.0}}
        )
        console.close()
        lines = stream.getvalue().splitlines()
        assert "\x1b" not in stream.getvalue()
        assert lines[:4] == ["CartPole", "lstm 128", "compiling the training program", "training"]
        header, first, _, second = lines[4:8]
        assert header.split() == "steps % steps/s iteration return length eval policy loss".split()
        assert first.split() == "50,000 50.0 25.3k 80.8 ms 123.4 120.0 - -0.0123".split()
        assert second.split()[7] == "475.0"
        assert len(header) == len(first) == len(second) < 80
        assert lines[-1] == "done: all steps made, greedy return 500.0, 100,000 steps in 4.2 s"

    def test_both_modes_of_evaluations_have_columns(self) -> None:
        stream = io.StringIO()
        console = Console("CartPole", "lstm 128", 100_000, highlights=HIGHLIGHTS, stream=stream)
        console.write(50_000, ROW)
        console.write(50_000, {"eval/return": 95.0, "eval/greedy/return": 90.0, "eval/sampled/return": 95.0})
        console.write(100_000, ROW)
        returns = {"greedy": 90.0, "sampled": 95.0}
        console.finish(
            {"stop_reason": "steps", "eval_return": 95.0, "eval_mode": "sampled", "eval_returns": returns}
        )
        console.close()
        *_, header, row, conclusion = stream.getvalue().splitlines()
        assert header.split()[4:8] == ["return", "length", "greedy", "sampled"]
        assert row.split()[7:9] == ["90.00", "95.00"]
        assert len(header) == len(row) < 80
        assert conclusion == "done: all steps made, sampled return 95.00, greedy 90.00"

    @pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("JPY_PARENT_PID", "1")])
    def test_a_terminal_that_cannot_redraw_gets_lines(
        self, name: str, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv(name, value)
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
        assert stream.getvalue().startswith("na?ve\n?\ncompiling?\n")

    def test_warnings_are_shown(self) -> None:
        stream = io.StringIO()
        console = Console("title", "subtitle", None, stream=stream)
        logging.getLogger("jaxrl.reporting.writers").warning("disk is %s", "full")
        console.close()
        logging.getLogger("jaxrl.reporting.writers").warning("too late")
        assert stream.getvalue().splitlines()[2:] == ["warning: disk is full"]


class TestLive:
    @pytest.mark.parametrize(("columns", "rows"), [(60, 20), (80, 24), (100, 30), (200, 50)])
    @pytest.mark.parametrize("budget", [(1_000_000, None), (None, 60.0), (1_000_000, 60.0), (None, None)])
    def test_screen_fits_the_terminal(
        self, columns: int, rows: int, budget: tuple[int | None, float | None]
    ) -> None:
        progress = RunProgress("gymnax:CartPole-v1  seed 0", "mlp 128, lstm 128; " * 6, *budget, HIGHLIGHTS)
        for step in range(200):
            evaluated = dict.fromkeys(("eval/return", "eval/greedy/return"), float(step))
            evaluated |= {"eval/sampled/return": 7.0, "checkpoint/step": step * 5000.0}
            progress.update(step * 5000, ROW | evaluated)
        progress.enter("a phase with a very long name " * 4)
        stream = io.StringIO()
        rich.console.Console(file=stream, width=columns, height=rows).print(RunPanel(progress))
        lines = stream.getvalue().splitlines()
        assert max(len(line) for line in lines) <= columns
        assert len(lines) <= rows
        for shown in (
            "return, sampled",
            "123.4",
            "1,152 updates",
            "explained variance of returns",
            "0.4567",
            "compile 3.2 s",
        ):
            assert shown in stream.getvalue()
        load = "cores 87% 939 MB, devices 42% 4.10 GB, 80.8 ms per iteration"
        assert load[: columns - 5] in stream.getvalue()

    def test_seconds_count_while_the_main_thread_compiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        stream = Terminal()
        console = Console("title", "subtitle", 1000, stream=stream)
        console.status("compiling the training program")
        deadline = time.monotonic() + 10
        while "compiling the training program… 1 s" not in stream.getvalue():
            assert time.monotonic() < deadline, "the screen stands still"
            time.sleep(0.05)
        console.close()

    def test_control_keys_do_not_move_the_panel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        ours, theirs = os.openpty()
        with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
            before = termios.tcgetattr(terminal)
            console = Console("title", "subtitle", 1000, stream=terminal)
            os.write(ours, b"\x1a\x03\n")  # Ctrl-Z and Ctrl-C, as typed
            # The kernel echoes in its own time: once the line can be read, it has.
            assert select.select([terminal], [], [], 30)[0]
            console.status("saving")
            console.close()
            assert termios.tcgetattr(terminal) == before
        shown = b""
        with contextlib.suppress(OSError):  # All has been read, and nobody writes any more.
            while chunk := os.read(ours, 1 << 16):
                shown += chunk
        os.close(ours)
        assert b"saving" in shown
        assert b"^C" not in shown
        assert b"^Z" not in shown

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
        logging.getLogger("jaxrl.reporting.writers").warning("disk is full")
        console.finish({"stop_reason": "return", "eval_return": 481.0, "eval_mode": "greedy"})
        console.close()
        assert "warning: disk is full" in stream.getvalue()
        assert "done: target return reached, greedy return 481.0" in stream.getvalue()
