"""Tables of commands: whole in a pipe, in parts that fit on a terminal."""

from __future__ import annotations

import io
import re
import sys

import pytest

from jaxrl.reporting.display import table

HEADINGS = ("variant", *(f"column {i}" for i in range(12)))
ROWS = [("learning_rate=0.1", *("12,345.67" for _ in range(12))), ("[b]x", *("-" for _ in range(12)))]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_shows_every_cell_and_wraps_nothing(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    table.show(HEADINGS, ROWS, title="All of them")
    shown = re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns
    assert shown.count("12,345.67") == 12
    assert shown.count("All of them") == 1
    heads = [line for line in lines if line.startswith("variant")]
    assert len(heads) > 1
    assert " ".join(heads).count("column") == 12
    assert sum(line.startswith("[b]x") for line in lines) == len(heads)


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = "/a/very/long/folder" * 20
    table.show((*HEADINGS, "run"), [(*row, path) for row in ROWS])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "variant"
    assert first.endswith(path)
    assert second.endswith(path)


def test_fields_go_on_below_themselves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("training", "one two three four"), ("", "--config.env.num_envs=8")]
    table.show_fields(rows, 10)
    assert capsys.readouterr().out == "training  one two three four\n          --config.env.num_envs=8\n"
    table.show_fields([("", "without a name"), ("", "and without room for one")], 0)
    assert capsys.readouterr().out == "without a name\nand without room for one\n"
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", stream := Terminal())
    table.show_fields([("training", "one two three four five six")], 10)
    assert stream.getvalue() == "training  one two three four\n          five six\n"


def test_parts() -> None:
    assert [*table.parts([5, 5, 5, 5], 1, 100)] == [[0, 1, 2, 3]]
    # 5 + 2 + 5 = 12 fit, 19 do not.
    assert [*table.parts([5, 5, 5, 5], 1, 12)] == [[0, 1], [0, 2], [0, 3]]
    assert [*table.parts([5, 5, 50, 5], 1, 19)] == [[0, 1], [0, 2], [0, 3]]
    assert [*table.parts([5, 5], 2, 3)] == [[0, 1]]
