"""Runs with a large memory that are killed, rolled back, or resumed from an older step; bitwise, or said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jaxrl.runs.checkpoint import CheckpointError, checkpoint_folder, memory_item
from jaxrl.runs.checkpoint.memory_item import MemoryItems
from jaxrl.training.callbacks import Callbacks
from jaxrl.training.trainer import Trainer
from jaxrl.types import TrainState
from tests.algorithms.test_conformance import poisoned
from tests.algorithms.test_replay import trained, trainer
from tests.algorithms.tiny import LENGTH, STEPS, assert_equal
from tests.compiled_trainers import compile_once

pytestmark = pytest.mark.slow

EMPTY = "it starts empty"
WITHOUT = f"checkpoints are without the memory: {EMPTY}"


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once(monkeypatch)


def starts_empty(state: TrainState) -> bool:
    """True if neither rows nor counts say that anything was remembered."""
    return not int(state.memory.count) and not np.asarray(state.memory.rows["obs"]).any()


def final(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """The digests of all arrays of a run's newest checkpoint, which is intact."""
    checkpoints = checkpoint_folder.find(epath.Path(folder / "checkpoints")).steps
    path = checkpoints[max(checkpoints)]
    record = checkpoint_folder.read_record(path)
    assert checkpoint_folder.damage(path) is None
    assert MemoryItems(path.parent).problem(record) is None
    assert record.memory is not None
    return record.arrays, record.memory


def test_rows_are_restored_in_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_item, "BLOCK_BYTES", 1_000)
    state = trained(tmp_path, 6)
    again = trainer(tmp_path, 6)
    again.start()
    assert_equal(again.state, state)


def test_another_capacity_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, 2)
    with pytest.raises(
        CheckpointError, match=r"does not fit: memory/carry.* is .* there and .* in this conf"
    ):
        trainer(tmp_path, 4, learner__capacity=32).start()


def test_an_older_step_starts_with_an_empty_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = trainer(tmp_path / "run", 6)
    assert first.folder is not None
    first.folder._keep = 2
    first.fit()
    other = trainer(tmp_path / "other", 8, resume_from=str(tmp_path / "run" / "checkpoints" / str(4 * STEPS)))
    other.start()
    assert int(other.state.iteration) == 4
    assert starts_empty(other.state)
    assert sum(message.endswith(EMPTY) for message in caplog.messages) == 1
    other.fit()
    assert int(other.state.memory.count) == 4 * 16


@pytest.mark.parametrize(
    ("algorithm", "fields", "kept"),
    [
        ("uniform_dqn", {}, 4 * LENGTH),
        # All that its ring holds; tests/algorithms/test_conformance.py resumes one.
        pytest.param("dqn", {}, 2 * LENGTH, marks=pytest.mark.long),
        ("dqn", {"learner__checkpoint": False}, 0),
    ],
    ids=["fixture", "dqn", "dqn_without"],
)
def test_a_rollback_restores_the_memory_or_says_that_it_is_empty(
    tmp_path: Path,
    algorithm: str,
    fields: dict[str, Any],
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = trainer(tmp_path, 8, algorithm, nonfinite="rollback", **fields)
    run.start()
    restored: list[tuple[int, int]] = []
    roll_back = run._run.roll_back

    def watched(state: TrainState, progress: Any) -> None:
        restored.append((int(state.iteration), int(state.memory.count)))
        roll_back(state, progress)

    def poison(trainer: Trainer, step: int) -> None:
        if step == 4 * STEPS and not restored:
            trainer._run.replace(poisoned(trainer.state, "reward", math.nan))

    run.callbacks = Callbacks(on_checkpoint=poison)
    monkeypatch.setattr(run._run, "roll_back", watched)
    run.fit()
    assert restored == [(4, kept)]
    lines = [message for message in caplog.messages if message.endswith(EMPTY)]
    assert lines == ([] if kept else [WITHOUT])
    # Collected anew, whatever it was.
    assert int(run.state.iteration) == 8
    assert int(run.state.memory.count) >= 2 * LENGTH


def test_a_memory_may_stay_out_of_checkpoints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    without: dict[str, Any] = {"algorithm": "dqn", "learner__checkpoint": False}
    state = trained(tmp_path, 4, **without)
    checkpoints = tmp_path / "checkpoints"
    assert not (checkpoints / "memory").exists()
    record = checkpoint_folder.read_record(epath.Path(checkpoints / str(4 * STEPS)))
    assert not [name for name in record.arrays if name.startswith("memory")]
    again = trainer(tmp_path, 5, **without)
    again.start()
    assert [message for message in caplog.messages if message.endswith(EMPTY)] == [WITHOUT]
    assert starts_empty(again.state)
    assert not np.asarray(again.state.memory.tree.leaf).any()
    # All but the memory is what it was; the run is longer now.
    planned = again.state.learner.planned
    state = dataclasses.replace(state, learner=dataclasses.replace(state.learner, planned=planned))
    for each in ("learner", "collector", "key", "iteration"):
        assert_equal(getattr(again.state, each), getattr(state, each))
    again.fit()
    assert int(again.state.memory.count) == LENGTH
    # Saved again from here on, it is not there yet.
    third = trainer(tmp_path, 6, "dqn")
    third.start()
    assert starts_empty(third.state)


def test_a_saved_state_is_loaded_with_its_memory(tmp_path: Path) -> None:
    run = trainer(tmp_path / "run", 4)
    run.fit()
    run.save(tmp_path / "saved")
    other = trainer(tmp_path / "other", 4)
    other.load(tmp_path / "saved")
    assert_equal(dataclasses.replace(other.state, memory=None), dataclasses.replace(run.state, memory=None))
    assert_equal(other.state.memory, run.state.memory)
    assert jnp.any(other.state.memory.rows["obs"] != 0)
