"""Records that are wrong, and files that are far too large: damage like any other, found without delay."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorstore as ts

from jaxrl.runs.checkpoint import Checkpointer, CorruptCheckpoint, checkpoint_folder, checkpoint_record
from jaxrl.runs.checkpoint.verification import verify
from jaxrl.training.progress import Progress
from tests.runs.checkpoint.checkpoints import abstract_of, meta_at, state_at

ABSTRACT = abstract_of(state_at(0))
AT_ONCE = 20.0  # seconds; reading what is pretended would take minutes, or all memory


def assert_damaged(run: Path, checkpointer: Checkpointer) -> None:
    """The checkpoint of step 10 is told to be damaged, set aside, and that of step 5 used."""
    started = time.monotonic()
    entries = {entry.path: entry for entry in verify(str(run), check=Progress.check)}
    entry = entries[str(run / "checkpoints" / "10")]
    assert entry.bad
    assert entry.problem is not None
    assert len(entry.problem) < 1000
    found = checkpointer.restore_latest(ABSTRACT, Progress.check)
    assert found is not None
    assert (found[0], found[2]) == (5, meta_at(5))
    assert (run / "corrupt" / "10").exists()
    assert time.monotonic() - started < AT_ONCE


def reseal(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes the record of step 10 and gives it a digest that fits, as a program with a bug would."""
    file = run / "checkpoints" / "10" / "meta" / "metadata"
    content = checkpoint_record.unseal(file.read_text())
    change(content)
    text = json.dumps(content | {"digest": checkpoint_record._content_digest(content)})
    file.write_text(text)


def without(*path: str) -> Callable[[dict[str, Any]], Any]:
    def change(record: dict[str, Any]) -> None:
        for name in path[:-1]:
            record = record[name]
        del record[path[-1]]

    return change


def changed(value: Any, *path: str) -> Callable[[dict[str, Any]], Any]:
    def change(record: dict[str, Any]) -> None:
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


HEAD = ("arrays", "learner/policy/params/head")
EVALUATION = {"mean": 1.0, "episodes": 10}

CHANGES = {
    "no step": without("step"),
    "no score": without("score"),
    "no meta": without("meta"),
    "no arrays": without("arrays"),
    "a text as step": changed("10", "step"),
    "a negative step": changed(-10, "step"),
    "a text as score": changed("best", "score"),
    "a huge score": changed(10**400, "score"),
    "a list as meta": changed([], "meta"),
    "a list as arrays": changed([1, 2], "arrays"),
    "no arrays in it": changed({}, "arrays"),
    "a number as array": changed(3, *HEAD),
    "an array without a digest": without(*HEAD, "digest"),
    "a text as shape": changed("64", *HEAD, "shape"),
    "a negative size": changed([-1, 32], *HEAD, "shape"),
    "objects as dtype": changed("object", *HEAD, "dtype"),
    "an unknown dtype": changed("float33", *HEAD, "dtype"),
    "no iteration": without("meta", "iteration"),
    "no seconds": without("meta", "seconds"),
    "no evaluation": without("meta", "evaluation"),
    "no sums": without("meta", "interval"),
    "no configuration": without("meta", "config"),
    "a text as iteration": changed("ten", "meta", "iteration"),
    "half an iteration": changed(1.5, "meta", "iteration"),
    "a text as seconds": changed("soon", "meta", "seconds"),
    "infinite seconds": changed(math.inf, "meta", "seconds"),
    "a list as evaluation": changed([1], "meta", "evaluation"),
    "half an evaluation": changed(EVALUATION, "meta", "evaluation"),
    "a text as evaluated_at": changed("", "meta", "evaluated_at"),
    "a list as sums": changed([0], "meta", "interval"),
    "a text as sum": changed({".iterations": "0"}, "meta", "interval"),
    "a text as configuration": changed("ppo", "meta", "config"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_record_with_a_digest_that_fits_is_still_checked(
    run: Path, checkpointer: Checkpointer, change: Callable[[dict[str, Any]], Any]
) -> None:
    reseal(run, change)
    assert_damaged(run, checkpointer)


def test_a_record_that_nests_without_end(run: Path, checkpointer: Checkpointer) -> None:
    (run / "checkpoints" / "10" / "meta" / "metadata").write_text("[" * 100_000)
    assert_damaged(run, checkpointer)


@pytest.mark.parametrize("name", ["meta/metadata", "state/manifest.ocdbt", "state/_METADATA", "state/junk"])
def test_a_sparse_file_of_40_gb_is_not_read(run: Path, checkpointer: Checkpointer, name: str) -> None:
    with (run / "checkpoints" / "10" / name).open("ab") as file:
        os.truncate(file.fileno(), 40 << 30)
    assert_damaged(run, checkpointer)


def test_more_files_than_any_save_makes(
    run: Path, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_folder, "_MOST_ENTRIES", 200)
    for i in range(200):
        (run / "checkpoints" / "10" / "state" / f"junk{i}").write_text("")
    assert_damaged(run, checkpointer)


def test_what_arrays_claim_is_compared_before_they_are_read(run: Path, checkpointer: Checkpointer) -> None:
    # A few bytes that claim 4 TB: every chunk that is not there would be filled with zeros.
    base = {"driver": "file", "path": f"{run}/checkpoints/10/state/"}
    store = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    name = "learner.policy/params/head/.zarray"
    description = json.loads(store[name])
    description |= {"shape": [1 << 20, 1 << 20], "chunks": [1 << 20, 1 << 20]}
    store[name] = json.dumps(description).encode()
    with pytest.raises(CorruptCheckpoint, match="the array learner/policy/params/head is not what was saved"):
        checkpointer.restore(10, ABSTRACT)
    assert_damaged(run, checkpointer)


def test_a_record_that_claims_more_than_the_memory_is_not_believed(run: Path) -> None:
    reseal(run, changed([1 << 30, 1 << 20], *HEAD, "shape"))
    (bad,) = [entry for entry in verify(str(run)) if entry.problem is not None]
    assert "more than the memory of this machine" in str(bad.problem)
    assert bad.step == 10


def test_what_a_trainer_saves_is_what_it_reads() -> None:
    Progress.check(meta_at(5))
    names = {field.name for field in dataclasses.fields(Progress)}
    assert {*meta_at(5)} - {"config"} <= names
