"""Finding and reading what runs have written, also while they write."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from etils import epath

from jaxrl.config.errors import ConfigError
from jaxrl.reporting.writers import JsonlWriter
from jaxrl.runs import records
from jaxrl.runs.records import MetricsTail, Run
from tests.comparison.run_folders import write_run
from tests.runs.storage.gcs_server import GcsServer


def test_runs_by_folder_pattern_and_name(tmp_path: Path) -> None:
    a, b, c = (str(write_run(tmp_path / name, [1.0])) for name in ("x/a", "x/b", "y/deep/er/c"))
    (tmp_path / "x" / "notes").mkdir()
    assert records.find([str(tmp_path)]) == [a, b, c]
    assert records.find([c, str(tmp_path / "x")]) == [c, a, b]
    assert records.find([str(tmp_path / "x" / "[b-z]*"), a]) == [b, a]
    assert records.find([a, a]) == [a]
    with pytest.raises(ConfigError, match="is no run folder"):
        records.find([str(tmp_path / "x" / "z*")])


def test_curves_leave_out_what_is_not_finite(tmp_path: Path) -> None:
    write_run(tmp_path, [1.0, float("nan"), 3.0])
    run = records.read(str(tmp_path))
    steps, values = run.curve("eval/return")
    assert (steps.tolist(), values.tolist()) == ([1000, 3000], [1.0, 3.0])
    assert run.curve("no/such")[0].size == 0
    assert (run.seconds_at(1500), run.seconds_at(9000)) == (2.0, None)
    older = [{k: x for k, x in row.items() if k != "time/budget_seconds"} for row in run.rows]
    assert dataclasses.replace(run, rows=older).seconds_at(1500) == 32.0
    assert run.config["ppo.learning_rate"] == 1e-3


def test_a_curve_is_in_the_order_of_its_steps() -> None:
    """Rows of a run that went back may come in another order."""
    rows: list[dict[str, Any]] = [{"step": step, "a": float(step)} for step in (2, 3, 1)]
    steps, values = records.Run("x", {}, rows, None).curve("a")
    assert (steps.tolist(), values.tolist()) == ([1, 2, 3], [1, 2, 3])


def steps_of(tail: MetricsTail) -> tuple[bool, list[int]]:
    replaced, rows = tail.poll()
    return replaced, [row["step"] for row in rows]


def test_rows_are_read_once_as_they_come(tmp_path: Path) -> None:
    tail = MetricsTail(epath.Path(tmp_path))
    assert steps_of(tail) == (False, [])
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write(1, {"a": 1.0})
    writer.write(2, {"a": 1.0})
    assert steps_of(tail) == (False, [1, 2])
    assert steps_of(tail) == (False, [])
    writer.write(3, {"a": 1.0})
    assert steps_of(tail) == (False, [3])
    writer.close()


def test_a_resumed_run_replaces_rows(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        writer.write(step, {"a": 1.0})
    tail = MetricsTail(epath.Path(tmp_path))
    tail.poll()
    writer.resume_from(1)
    for step in (2, 3, 4):
        writer.write(step, {"a": 2.0})
    assert steps_of(tail) == (True, [1, 2, 3, 4])
    writer.close()
    os.remove(tmp_path / "metrics.jsonl")
    assert steps_of(tail) == (True, [])


def test_a_row_that_is_being_written_comes_later(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    tail = MetricsTail(epath.Path(tmp_path))
    file.write_text('{"step": 1}\n{"st')
    assert steps_of(tail) == (False, [1])
    file.write_text('{"step": 1}\n{"step": 2}\nnonsense\n{"step": 3}\n')
    assert steps_of(tail) == (False, [2, 3])


def test_runs_in_a_bucket(tmp_path: Path, gcs: GcsServer) -> None:
    local = write_run(tmp_path / "seed-0", [1.0, 2.0])
    for name in ("config.json", "summary.json", "metrics.jsonl"):
        gcs.put("runs", f"lr/seed-0/{name}", (local / name).read_bytes())
    run = "gs://runs/lr/seed-0"
    assert records.find(["gs://runs/lr"]) == [run]
    assert records.find(["gs://runs/l*/seed-?"]) == [run]
    there, here = records.read(run), records.read(str(local))
    assert (there.rows, there.config, there.summary) == (here.rows, here.config, here.summary)
    records.require_place("gs://runs/lr")
    with pytest.raises(ConfigError, match="is no folder"):
        records.require_place("gs://runs/nowhere")
    with pytest.raises(ConfigError, match="is no run folder"):
        records.find(["gs://runs/nowhere"])


def test_rows_that_come_into_a_bucket(gcs: GcsServer) -> None:
    lines = [b'{"step": 1}\n', b'{"step": 2}\n', b'{"step": 3}\n']
    gcs.put("runs", "a/metrics.jsonl", b"".join(lines[:2]))
    tail = MetricsTail(epath.Path("gs://runs/a"))
    assert steps_of(tail) == (False, [1, 2])
    assert steps_of(tail) == (False, [])
    gcs.put("runs", "a/metrics.jsonl", b"".join(lines))
    assert steps_of(tail) == (False, [3])
    gcs.put("runs", "a/metrics.jsonl", lines[0])
    assert steps_of(tail) == (True, [1])


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "summary.json"])
def test_a_pipe_in_a_run_folder_is_one_error(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, [1.0])
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match=f"cannot be read: .*no regular file: .*{name}"):
        records.read(str(tmp_path))


@pytest.mark.parametrize("name", ["config.json", "summary.json"])
def test_a_deep_file_of_a_run_is_damaged(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, [1.0])
    (tmp_path / name).write_text('{"a":' * 100_000)
    with pytest.raises(ConfigError, match=f"{name} is damaged: it is nested more than 100 levels deep"):
        records.read(str(tmp_path))


def test_the_steps_at_which_stages_end() -> None:
    # A row ends with a stage of training; a curriculum counts the steps since its change.
    training = [{"step": 10, "stage": 1}, {"step": 15}, {"step": 20, "stage": 1}, {"step": 30, "stage": 2}]
    assert Run("", {}, training, None).stage_ends == [20]
    names = ("step", "curriculum/stage", "curriculum/steps")
    chosen = [
        dict(zip(names, row, strict=True)) for row in ((10, 1, 10), (20, 2, 4), (30, 2, 14), (40, 1, 0))
    ]
    assert Run("", {}, chosen, None).stage_ends == [16, 40]
