"""Folders with names that Orbax or tensorstore would misread, and saves that are read back."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from jaxrl.runs.checkpoint import Checkpointer, SaveError, background_save
from jaxrl.runs.checkpoint.verification import verify
from jaxrl.training.progress import Progress
from tests.runs.checkpoint.checkpoints import abstract_of, assert_bitwise_equal, meta_at, save_run, state_at

NAMES = ["lr=[0.1]", "exp[1]/run", "back\\slash", "star*", "what?", "gs:", "gs:/run", "with space", "ünïcode"]
NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest.mark.parametrize("name", [*NAMES, NOT_UTF8], ids=ascii)
def test_checkpoints_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    save_run(run, 5, 10)
    checkpointer = Checkpointer(str(run / "checkpoints"), keep=2)
    found = checkpointer.restore_latest(abstract_of(state_at(0)), Progress.check)
    checkpointer.close()
    assert found is not None
    assert (found[0], found[2]) == (10, meta_at(10))
    assert_bitwise_equal(found[1], state_at(10))
    assert [entry.problem for entry in verify(str(run), check=Progress.check)] == [None, None]


def test_a_save_that_cannot_be_read_back_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In such a folder Orbax does not find the files that it is to join, and says nothing.
    monkeypatch.setattr(background_save, "plain_path", contextlib.nullcontext)
    checkpointer = Checkpointer(str(tmp_path / "lr=[0.1]" / "checkpoints"), keep=2)
    for _ in range(2):
        checkpointer.save(5, state_at(5), meta_at(5))
        with pytest.raises(SaveError, match="it cannot be read back: .* is damaged: the array"):
            checkpointer.wait()
        assert checkpointer.all_steps() == ()
    monkeypatch.undo()
    assert checkpointer.save(5, state_at(5), meta_at(5))
    checkpointer.close()
    assert checkpointer.all_steps() == (5,)


@pytest.mark.parametrize("how", ["shortened", "lost"])
def test_a_part_that_is_not_there_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # As on a file system that loses what it has accepted.
    read_back = background_save.checkpoint_folder.read_back

    def after_a_loss(path: Path, sealed: dict[str, object]) -> None:
        for file in Path(path, "state").rglob("d/*"):
            if how == "lost":
                file.unlink()
            else:
                os.truncate(file, file.stat().st_size - 1)
        read_back(path, sealed)  # type: ignore[arg-type]

    monkeypatch.setattr(background_save.checkpoint_folder, "read_back", after_a_loss)
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"))
    checkpointer.save(5, state_at(5), meta_at(5))
    with pytest.raises(SaveError, match="it cannot be read back"):
        checkpointer.close()
    assert checkpointer.all_steps() == ()
