"""Runs in a bucket are what they are on a disk, and are read on as they grow."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from jaxrl.diagnostics.dashboard.collection import RunCollection
from tests.comparison.run_folders import write_run
from tests.runs.storage.gcs_server import GcsServer

# Found and not imported, which takes half a second of every collection of tests.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("gcsfs") is None, reason="gcsfs is not installed")


def put(source: Path, target: str) -> None:
    for file in filter(Path.is_file, source.rglob("*")):
        epath.Path(f"{target}/{file.relative_to(source)}").write_bytes(file.read_bytes())


def test_runs_of_a_bucket_are_those_of_a_folder(tmp_path: Path, gcs: GcsServer) -> None:
    for seed in range(2):
        write_run(tmp_path / f"slow/{seed}", [1.0 + seed, 2.0 + seed], seed)
    put(tmp_path, "gs://runs/all")
    here, there = RunCollection(str(tmp_path), 1.0), RunCollection("gs://runs/all", 1.0)
    here.look()
    there.look()
    rows = [{row["name"]: row for row in each.table("")["runs"]} for each in (here, there)]
    assert rows[1].keys() == {"slow/0", "slow/1"}
    for name in rows[0]:
        assert {k: rows[0][name][k] for k in ("step", "eval", "state")} == {
            k: rows[1][name][k] for k in ("step", "eval", "state")
        }
    names = sorted(rows[0])
    (before,), (local,) = (each.curves(names, "eval/return") for each in (there, here))
    assert before == local
    with (tmp_path / "slow/0/metrics.jsonl").open("a") as stream:
        stream.write(json.dumps({"step": 9000, "time": 1.0, "eval/return": 7.0}) + "\n")
    put(tmp_path / "slow/0", "gs://runs/all/slow/0")
    there.look()
    (after,) = there.curves(["slow/0"], "eval/return")
    np.testing.assert_array_equal((after["steps"][-1], after["mean"][-1]), (9000, 7.0))
