"""Damaged checkpoints: never restored wrongly, named, set aside, and the one before is used."""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from etils import epath

from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, CorruptCheckpoint, checkpoint_folder
from jaxrl.types import TrainState
from tests.compiled_programs import with_policy
from tests.runs.checkpoint.checkpoints import (
    abstract_of,
    assert_bitwise_equal,
    files_of,
    flip_largest,
    make_state,
    meta_at,
    save_run,
    state_at,
)


@functools.cache
def abstract() -> TrainState:
    return abstract_of(state_at(0))


def flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def truncate(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def zero(file: Path, rng: random.Random) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def empty(file: Path, rng: random.Random) -> None:
    file.write_bytes(b"")


def delete(file: Path, rng: random.Random) -> None:
    file.unlink()


def make_folder(file: Path, rng: random.Random) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, truncate, zero, empty, delete, make_folder])
def test_damage_to_any_file_never_gives_a_wrong_state(
    original: Path, tmp_path: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    rng = random.Random(0)
    names = [name for name in files_of(original) if name.startswith("checkpoints/10/")]
    used = {}
    for name in names:
        run = Path(shutil.copytree(original, tmp_path / name.replace("/", "_")))
        damage(run / name, rng)
        checkpointer = Checkpointer(str(run / "checkpoints"), keep=2)
        found = checkpointer.restore_latest(abstract())
        checkpointer.close()
        assert found is not None
        step, state, meta = found
        assert_bitwise_equal(state, state_at(step))
        assert meta == meta_at(step)
        assert (run / "corrupt" / "10").exists() == (step == 5)
        used[name.removeprefix("checkpoints/10/")] = step
    assert used["meta/metadata"] == 5
    if damage is not flip:  # a flipped bit may lie where nothing is stored
        assert used["state/manifest.ocdbt"] == 5
        assert 5 in [step for name, step in used.items() if name.startswith("state/d/")]


def test_one_bit_of_an_array_is_found_and_named(run: Path, checkpointer: Checkpointer) -> None:
    # What Orbax and tensorstore by themselves restore without a word.
    flip_largest(run / "checkpoints" / "10")
    with pytest.raises(CorruptCheckpoint) as caught:
        checkpointer.restore(10, abstract())
    folder = run / "checkpoints" / "10"
    assert (
        str(caught.value)
        == f"the checkpoint {folder} is damaged: the array learner/policy/params/head is not what was saved"
    )
    # Other fields can still be trusted, each by its own digests.
    restored = checkpointer.restore_partial(10, ("collector",), abstract())
    assert_bitwise_equal(restored["collector"], state_at(10).collector)


def test_the_one_before_is_used_and_training_goes_on_from_there(
    run: Path, checkpointer: Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    flip_largest(run / "checkpoints" / "10")
    damaged = files_of(run / "checkpoints" / "10")
    found = checkpointer.restore_latest(abstract())
    assert found is not None
    assert found[0] == 5
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "learner/policy/params/head is not what was saved" in messages[0]
    assert str(run / "corrupt" / "10") in messages[0]
    assert messages[1] == "continuing from step 5, the latest intact checkpoint"
    assert files_of(run / "corrupt" / "10") == damaged
    # The steps up to the bad one are made, and saved, once more.
    assert checkpointer.save(10, state_at(10), {})
    checkpointer.wait()
    assert checkpointer.all_steps() == (5, 10)
    # A second bad one of the same step does not meet the first.
    flip_largest(run / "checkpoints" / "10")
    checkpointer.restore_latest(abstract())
    assert sorted(path.name for path in (run / "corrupt").iterdir()) == ["10", "10-1"]


def test_none_intact_is_never_a_fresh_start(run: Path, checkpointer: Checkpointer) -> None:
    for step in (5, 10):
        flip_largest(run / "checkpoints" / str(step))
    for _ in range(2):  # at the next start, too, when all have been set aside
        with pytest.raises(
            CheckpointError, match="none that is intact is left .*corrupt.*delete .* --workdir"
        ):
            checkpointer.restore_latest(abstract())
    assert {path.name for path in (run / "corrupt").iterdir()} == {"5", "10"}


@pytest.mark.parametrize("lost", ["deleted", "emptied"])
def test_lost_checkpoints_are_no_fresh_start(run: Path, checkpointer: Checkpointer, lost: str) -> None:
    for step in ("5", "10"):
        shutil.rmtree(run / "checkpoints" / step)
        if lost == "emptied":
            (run / "checkpoints" / step).mkdir()
    with pytest.raises(CheckpointError, match="has held checkpoints"):
        checkpointer.restore_latest(abstract())


def test_what_was_set_aside_is_no_fresh_start(run: Path, checkpointer: Checkpointer) -> None:
    # As after a kill between the first checkpoint and the note that there is one.
    (run / "checkpoints").rename(run / "corrupt")
    with pytest.raises(CheckpointError, match="has held checkpoints"):
        checkpointer.restore_latest(abstract())


def test_a_run_that_was_killed_in_its_first_save_is_fresh(tmp_path: Path) -> None:
    part = tmp_path / "checkpoints" / "5.orbax-checkpoint-tmp" / "state.orbax-checkpoint-tmp"
    part.mkdir(parents=True)
    (part / "_METADATA").write_text("{")
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"))
    assert checkpointer.restore_latest(abstract()) is None
    assert checkpointer.save(5, make_state(), {})
    checkpointer.close()
    assert not part.exists()


def test_contents_of_another_checkpoint_are_refused(run: Path, checkpointer: Checkpointer) -> None:
    folder = run / "checkpoints"
    shutil.copytree(folder / "5", folder / "7")
    with pytest.raises(CorruptCheckpoint, match="saved as the record of step 5"):
        checkpointer.meta(7)
    shutil.rmtree(folder / "10" / "state")
    shutil.copytree(folder / "5" / "state", folder / "10" / "state")  # same names, shapes and dtypes
    with pytest.raises(CorruptCheckpoint, match=r"the array \S+ is not what was saved"):
        checkpointer.restore(10, abstract())


def test_two_arrays_that_changed_places_are_found(run: Path, checkpointer: Checkpointer) -> None:
    state = state_at(10)
    params = state.learner.policy.params
    swapped = with_policy(
        state, params=params | {"torso": params["torso"] | {"bias": params["torso"]["bias"] + 1}}
    )
    other = Checkpointer(str(run / "other"))
    other.save(10, swapped, {"iteration": 2}, score=-10.0)
    other.close()
    shutil.rmtree(run / "checkpoints" / "10" / "state")
    shutil.copytree(run / "other" / "10" / "state", run / "checkpoints" / "10" / "state")
    with pytest.raises(
        CorruptCheckpoint, match="the array learner/policy/params/torso/bias is not what was saved"
    ):
        checkpointer.restore(10, abstract())


def test_what_does_not_fit_is_not_damaged(run: Path, checkpointer: Checkpointer) -> None:
    collector = dataclasses.replace(abstract().collector, obs=jax.ShapeDtypeStruct((4, 9), jnp.float32))
    other = dataclasses.replace(abstract(), collector=collector)
    before = files_of(run)
    with pytest.raises(CheckpointError, match="does not fit: collector/obs is") as caught:
        checkpointer.restore_latest(other)
    assert not isinstance(caught.value, CorruptCheckpoint)
    assert files_of(run) == before


def test_what_cannot_be_reached_is_not_damaged(run: Path) -> None:
    path = epath.Path(run / "checkpoints" / "10")
    record = checkpoint_folder.read_record(path)
    checkpoint_folder.read_arrays(path, record)  # what is imported late is imported now
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # no file can be opened
    errors: list[Exception] = []
    try:
        for read in (checkpoint_folder.read_record, lambda path: checkpoint_folder.read_arrays(path, record)):
            try:
                read(path)
            except Exception as error:
                errors.append(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [type(error) for error in errors] == [CheckpointError, CheckpointError]
    assert all("cannot be read: Too many open files" in str(error) for error in errors)


@pytest.mark.parametrize(
    ("error", "corrupt"),
    [
        (ConnectionError("reset"), False),
        (TimeoutError("too slow"), False),
        (PermissionError(13, "Permission denied"), False),
        (OSError(5, "Input/output error"), False),
        (ValueError("PERMISSION_DENIED: Error reading"), False),
        (ValueError("UNAVAILABLE: Error reading"), False),
        (ValueError("DATA_LOSS: Error decoding"), True),
        (FileNotFoundError(2, "No such file or directory"), True),
        (KeyError("arrays"), True),
    ],
    ids=repr,
)
def test_errors_of_the_way_there_are_not_damage(run: Path, error: Exception, corrupt: bool) -> None:
    # The files can be read: by the time anyone looks again, the network may be back.
    with (
        pytest.raises(CheckpointError) as caught,
        checkpoint_folder._classify_errors(epath.Path(run / "checkpoints" / "10")),
    ):
        raise error
    assert isinstance(caught.value, CorruptCheckpoint) == corrupt


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", ["meta/metadata", "state/manifest.ocdbt", "state/d"])
def test_files_without_permission_are_not_damaged(run: Path, checkpointer: Checkpointer, name: str) -> None:
    (run / "checkpoints" / "10" / name).chmod(0)
    with pytest.raises(CheckpointError, match="cannot be read: .*Permission denied") as caught:
        checkpointer.restore_latest(abstract())
    assert not isinstance(caught.value, CorruptCheckpoint)
    (run / "checkpoints" / "10" / name).chmod(0o755)
    assert not (run / "corrupt").exists()


def test_links_and_pipes_inside_a_checkpoint_are_refused(
    run: Path, checkpointer: Checkpointer, tmp_path: Path
) -> None:
    folder = run / "checkpoints"
    outside = tmp_path / "outside"
    shutil.move(folder / "10" / "state", outside)
    (folder / "10" / "state").symlink_to(outside)
    with pytest.raises(CorruptCheckpoint, match="10/state is a symbolic link"):
        checkpointer.restore(10, abstract())
    (folder / "5" / "meta" / "metadata").unlink()
    os.mkfifo(folder / "5" / "meta" / "metadata")  # reading it would block for ever
    with pytest.raises(CorruptCheckpoint, match="5/meta/metadata is no plain file"):
        checkpointer.restore(5, abstract())
    before = files_of(outside)
    with pytest.raises(CheckpointError, match="none that is intact"):
        checkpointer.restore_latest(abstract())
    assert files_of(outside) == before


def test_strays_are_ignored_and_never_followed(
    run: Path, checkpointer: Checkpointer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run / "checkpoints"
    outside = tmp_path / "outside"
    shutil.copytree(folder / "10", outside)
    before = files_of(outside)
    (folder / "99" / "state").mkdir(parents=True)
    (folder / "100").write_text("a file")
    for name, target in [("latest", "5"), ("7", "5"), ("101", "nowhere"), ("102", str(outside))]:
        (folder / name).symlink_to(target)
    (folder / "103.orbax-checkpoint-tmp").symlink_to(outside)
    (folder / "007").mkdir()
    (folder / "007" / "file").write_text("")

    assert checkpointer.all_steps() == (5, 10)
    assert checkpointer.best_step() == 5
    found = checkpointer.restore_latest(abstract())
    assert found is not None
    assert found[0] == 10
    warned = sorted(record.getMessage().split(", no checkpoint")[0] for record in caplog.records)
    kinds = {"7": "a symbolic link", "99": "an empty folder", "100": "a file", "101": "a symbolic link"}
    kinds |= {"102": "a symbolic link", "103.orbax-checkpoint-tmp": "a symbolic link"}
    assert warned == sorted(f"{folder / name} is {kind}" for name, kind in kinds.items())  # each once

    # Where one is in the way of a checkpoint it is moved, not followed and not deleted.
    for step in (99, 100, 101, 102):
        assert checkpointer.save(step, state_at(step), {})
        checkpointer.wait()
    assert checkpointer.all_steps() == (5, 101, 102)
    assert files_of(outside) == before
    assert os.readlink(run / "corrupt" / "102") == str(outside)
    assert (run / "corrupt" / "100").read_text() == "a file"
    assert (folder / "7").is_symlink()
    assert (folder / "103.orbax-checkpoint-tmp").is_symlink()


def test_leftovers_of_kills_are_no_checkpoints_and_are_cleared(run: Path, checkpointer: Checkpointer) -> None:
    folder = run / "checkpoints"
    for name in ("15.orbax-checkpoint-tmp", "20.orbax-checkpoint-tmp", "5.deleted"):
        shutil.copytree(folder / "10", folder / name)
    assert checkpointer.latest_step() == 10
    assert checkpointer.save(15, state_at(15), {})
    checkpointer.wait()
    assert sorted(path.name for path in folder.iterdir()) == [".started", "10", "15", "5"]


def test_a_damaged_record_costs_no_other_checkpoint(run: Path, checkpointer: Checkpointer) -> None:
    # It neither counts among those to keep nor decides which is best.
    (run / "checkpoints" / "10" / "meta" / "metadata").write_text("{}")
    assert checkpointer.best_step() == 5
    assert checkpointer.latest_step() == 10
    assert checkpointer.intact_steps() == (5,)
    for step in (15, 20):
        checkpointer.save(step, state_at(step), {})
    checkpointer.wait()
    assert checkpointer.all_steps() == (5, 10, 15, 20)  # 15 and 20 are the last two, 5 is the best


def test_a_folder_that_is_a_link_itself_is_fine(tmp_path: Path) -> None:
    # A user's scratch disk.
    (tmp_path / "scratch").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "scratch")
    save_run(tmp_path / "run", 5, 10)
    flip_largest(tmp_path / "scratch" / "10")
    checkpointer = Checkpointer(str(tmp_path / "run" / "checkpoints"), keep=2)
    found = checkpointer.restore_latest(abstract())
    checkpointer.close()
    assert found is not None
    assert found[0] == 5
    assert (tmp_path / "run" / "corrupt" / "10").is_dir()


def test_damage_is_told_in_one_line(
    run: Path, checkpointer: Checkpointer, capfd: pytest.CaptureFixture[str]
) -> None:
    # tensorstore's messages fill pages, and Orbax would print tracebacks of its threads besides.
    (run / "checkpoints" / "10" / "state" / "manifest.ocdbt").write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match="is damaged: the array .*manifest.ocdbt") as caught:
        checkpointer.restore(10, abstract())
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
