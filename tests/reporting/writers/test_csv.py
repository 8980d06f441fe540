"""Metrics as a table."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from jaxrl.reporting.writers import CsvWriter


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def steps_of(path: Path) -> list[str]:
    return [row["step"] for row in table_of(path)]


def test_rows_of_different_keys_share_one_table(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    writer = CsvWriter(path)
    writer.write(10, {"steps": 10, "loss/policy": 0.25})
    writer.write(10, {"eval/return": math.nan})
    writer.write(20, {"steps": 20, "loss/policy": -math.inf})
    # Read before close: a killed run must not lose rows.
    rows = table_of(path)
    assert list(rows[0]) == ["step", "time", "steps", "loss/policy", "eval/return"]
    assert all(float(row.pop("time")) > 1.6e9 for row in rows)
    assert [list(row.values()) for row in rows] == [
        ["10", "10", "0.25", ""],
        ["10", "", "", "nan"],
        ["20", "20", "-inf", ""],
    ]


def test_steps_continue_exactly_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    first = CsvWriter(path)
    for step in (10, 20, 30):
        first.write(step, {"a": 1.0})
    with path.open("a") as file:
        file.write("40,1.5e9,1.")  # torn by a crash
    second = CsvWriter(path)
    second.resume_from(20)
    second.write(30, {"b": 2.0})
    assert [(row["step"], row["a"], row["b"]) for row in table_of(path)] == [
        ("10", "1.0", ""),
        ("20", "1.0", ""),
        ("30", "", "2.0"),
    ]


def test_a_row_torn_at_the_end_of_the_restored_steps_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,time,a\n10,1.5e9,1.0\n20,1.5e9,1.")
    writer = CsvWriter(path)
    writer.resume_from(50)
    writer.write(60, {"a": 2.0})
    assert steps_of(path) == ["10", "60"]


def test_a_new_run_in_the_folder_of_a_dead_one_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,time,a\n10,1.5e9,1.0\n")
    CsvWriter(path).write(20, {"a": 2.0})
    assert steps_of(path) == ["20"]


def test_a_file_that_is_lost_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    writer = CsvWriter(path)
    writer.write(10, {"a": 1.0})
    path.unlink()
    writer.write(20, {"a": 2.0})
    writer.write(30, {"a": 3.0})
    assert steps_of(path) == ["20", "30"]
