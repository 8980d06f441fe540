"""The display: plain lines, and a live panel that fits its terminal."""

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

from jaxrl.reporting.display.console import Console
from jaxrl.reporting.display.panel import RunPanel
from jaxrl.reporting.display.progress import RunProgress

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
        summary = {"stop_reason": "steps", "eval_return": 95.0, "eval_mode": "sampled"}
        summary |= {"eval_returns": {"greedy": 90.0, "sampled": 95.0}, "eval_cut_off": 2, "eval_episodes": 4}
        console.finish(summary)
        console.close()
        *_, header, row, conclusion = stream.getvalue().splitlines()
        assert header.split()[4:8] == ["return", "length", "greedy", "sampled"]
        assert row.split()[7:9] == ["90.00", "95.00"]
        assert len(header) == len(row) < 80
        returns = "sampled return 95.00 (2 of 4 episodes cut off), greedy 90.00"
        assert conclusion == f"done: all steps made, {returns}"

    def test_the_number_of_a_stage_is_whole(self) -> None:
        stream = io.StringIO()
        highlights = [("curriculum/stage", "stage"), *HIGHLIGHTS]
        console = Console("CartPole", "lstm 128", 100_000, highlights=highlights, stream=stream)
        console.write(50_000, ROW | {"curriculum/stage": 2.0})
        console.close()
        header, row = stream.getvalue().splitlines()[-2:]
        words = [word for word in header.split() if word != "loss"]  # some headings have two
        assert dict(zip(words[::-1], row.replace(" ms", "ms").split()[::-1], strict=False))["stage"] == "2"

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

    @pytest.mark.slow
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
