"""Large memories in checkpoints: streamed, digested, kept with the newest only, and never lost by a crash."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, SaveError, checkpoint_files, memory_item
from jaxrl.runs.checkpoint.verification import verify
from jaxrl.runs.storage.copy import sync
from jaxrl.types import Bulk, Sharded
from tests import processes
from tests.runs.checkpoint.checkpoints import abstract_of, assert_bitwise_equal, files_of
from tests.runs.storage.gcs_server import GcsServer

ROOT = Path(__file__).parents[3]
CAPACITY, ENVS = 6, 8


@flax.struct.dataclass
class Inner:
    """A ring below another dataclass."""

    rows: Annotated[dict[str, jax.Array], Sharded(1), Bulk()]
    cursor: jax.Array


@flax.struct.dataclass
class Outer:
    """With everything that rows may be: bytes, half floats, scalars, nothing."""

    inner: Inner
    pool: Annotated[Any, Bulk()]
    count: jax.Array


def state_at(step: int, capacity: int = CAPACITY) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    rows = {
        "obs": jnp.asarray(rng.integers(0, 256, (capacity, ENVS, 3, 5)), jnp.uint8),
        "half": jnp.asarray(rng.normal(size=(capacity, ENVS)), jnp.bfloat16),
        "reward": jnp.asarray(rng.normal(size=(capacity, ENVS)), jnp.float32),
        "done": jnp.asarray(rng.random((capacity, ENVS)) < 0.5),
    }
    pool = (jnp.float32(step), jnp.zeros((0, 4)), jnp.full((3, 1, 7), step, jnp.int32))
    memory = Outer(Inner(rows, jnp.int32(step)), pool, jnp.int32(step + 1))
    return {"learner": {"w": jnp.full(3, step, jnp.float32)}, "memory": memory}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_item, "BLOCK_BYTES", 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


def opened(folder: Path) -> Checkpointer:
    return Checkpointer(str(folder), keep=3)


def save(folder: Path, *steps: int) -> None:
    checkpointer = opened(folder)
    for step in steps:
        checkpointer.save(step, state_at(step), {"iteration": step})
    checkpointer.close()


def restored(folder: Path) -> tuple[int, Any]:
    found = opened(folder).restore_latest(abstract_of(state_at(0)))
    assert found is not None
    return found[0], found[1]


def memories(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "memory").iterdir())


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 3), (1, 1, 40), (2, 3, 5, 2), (3, 0)])
@pytest.mark.parametrize("most", [1, 4, 24, 1_000])
def test_blocks_are_the_array_in_order(shape: tuple[int, ...], most: int) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    found = []
    for place, size in memory_item.blocks(shape, 4, most):
        block = array[tuple(slice(a, a + n) for a, n in zip(place, size, strict=True))]
        assert block.shape == size
        assert block.nbytes <= max(most, 4)
        found.append(block.reshape(-1))
    np.testing.assert_array_equal(np.concatenate(found or [np.zeros(0)]), array.reshape(-1))
    if most >= array.nbytes > 0:
        assert len(found) == 1


def test_rows_come_back_bitwise_and_lie_in_files_of_their_own(folder: Path) -> None:
    save(folder, 5)
    step, state = restored(folder)
    assert step == 5
    assert_bitwise_equal(state, state_at(5))
    sizes = sorted(len(content) for content in files_of(folder / "memory" / "5").values())
    rows = [x for x in jax.tree.leaves((state["memory"].inner.rows, state["memory"].pool)) if x.size]
    assert sizes == sorted(x.nbytes for x in rows)
    record = json.loads((folder / "5" / "meta" / "metadata").read_text())
    assert sorted(record["arrays"]) == ["learner/w", "memory/count", "memory/inner/cursor"]


def test_a_state_without_large_rows_has_the_layout_of_before(folder: Path) -> None:
    checkpointer = opened(folder)
    checkpointer.save(5, {"learner": {"w": jnp.zeros(3)}, "memory": None}, {})
    checkpointer.close()
    assert sorted(path.name for path in folder.iterdir()) == [".started", "5"]
    record = json.loads((folder / "5" / "meta" / "metadata").read_text())
    assert sorted(record) == ["arrays", "digest", "meta", "score", "step"]


def test_only_the_newest_keeps_its_memory(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(folder, 5, 10, 15)
    assert memories(folder) == ["15"]
    assert opened(folder).all_steps() == (5, 10, 15)
    state, _ = opened(folder).restore(10, abstract_of(state_at(0)))
    assert_bitwise_equal(state, state_at(10) | {"memory": None})
    assert caplog.messages == [
        "the memory of step 10 is not in its checkpoint, only the newest checkpoint keeps it: it starts empty"
    ]


@pytest.mark.slow
def test_a_crash_anywhere_leaves_a_checkpoint_with_its_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A copy of the folder at each moment, as a crash would leave it: nothing is done after it.
    save(folder, 5)
    moments = itertools.count()
    copies: list[Path] = []

    def photographed(function: Any) -> Any:
        def photograph(*arguments: Any, **named: Any) -> Any:
            copies.append(folder.parent.with_name(f"copy-{next(moments)}") / "checkpoints")
            shutil.copytree(folder, copies[-1])
            result = function(*arguments, **named)
            copies.append(folder.parent.with_name(f"copy-{next(moments)}") / "checkpoints")
            shutil.copytree(folder, copies[-1])
            return result

        return photograph

    monkeypatch.setattr(memory_item, "write_rows", photographed(memory_item.write_rows))
    monkeypatch.setattr(checkpoint_files, "remove", photographed(checkpoint_files.remove))
    save(folder, 10)
    monkeypatch.undo()
    assert len(copies) >= 14  # six arrays, and the older memory
    found = []
    for copy in copies:
        step, state = restored(copy)
        assert_bitwise_equal(state, state_at(step))
        found.append(step)
        # What lies around is cleared, and the next save is whole.
        save(copy, 10, 15)
        assert memories(copy) == ["15"]
        assert_bitwise_equal(restored(copy)[1], state_at(15))
    assert found == sorted(found)
    assert set(found) == {5, 10}


@pytest.mark.parametrize("damage", ["flip", "cut", "delete", "link", "all"])
def test_damage_is_found_and_the_memory_starts_empty(
    folder: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    save(folder, 5)
    file = max((folder / "memory" / "5").iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    elif damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "all":
        shutil.rmtree(folder / "memory")
    else:
        file.unlink()
        if damage == "link":
            (folder / "other").write_bytes(content)
            file.symlink_to(folder / "other")
    (entry,) = verify(str(folder.parent))
    assert entry.bad
    assert "memory" in str(entry.problem)
    step, state = restored(folder)
    assert step == 5
    assert_bitwise_equal(state, state_at(5) | {"memory": None})
    (line,) = caplog.messages
    assert "\n" not in line
    assert line.endswith(": it starts empty")


def test_verify_reads_the_memory_of_the_newest_only(folder: Path) -> None:
    save(folder, 5, 10)
    assert [(entry.step, entry.problem) for entry in verify(str(folder.parent))] == [(5, None), (10, None)]


def test_another_size_is_refused_in_one_line(folder: Path) -> None:
    save(folder, 5)
    message = (
        rf"^the memory of step 5 in {folder} does not fit: memory/inner/rows/done is bool\[6, 8\] there and "
        r"bool\[7, 8\] in this configuration$"
    )
    with pytest.raises(CheckpointError, match=message):
        opened(folder).restore_latest(abstract_of(state_at(0, capacity=7)))


def test_a_memory_that_is_no_longer_or_not_yet_saved(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    without = state_at(10) | {"memory": None}
    save(folder, 5)
    found = opened(folder).restore_latest(abstract_of(without))
    assert found is not None
    assert_bitwise_equal(found[1], state_at(5) | {"memory": None})
    assert not caplog.messages
    checkpointer = opened(folder)
    checkpointer.save(10, without, {})
    checkpointer.close()
    assert_bitwise_equal(restored(folder)[1], without)
    assert caplog.messages == [
        "the memory of step 10 is not in its checkpoint, it was saved without: it starts empty"
    ]


def test_a_failed_write_is_a_failed_save(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(folder, 5)
    checkpointer = opened(folder)

    def fail(*arguments: Any) -> None:
        raise OSError(28, "No space left on device", "a file")

    with monkeypatch.context() as patch:
        patch.setattr(memory_item, "write_rows", fail)
        with pytest.raises(SaveError, match="10 could not be written: No space left on device: a file"):
            checkpointer.save(10, state_at(10), {})
    assert_bitwise_equal(restored(folder)[1], state_at(5))
    assert checkpointer.save(10, state_at(10), {})
    checkpointer.close()
    assert memories(folder) == ["10"]


def test_a_record_that_leads_elsewhere_is_refused() -> None:
    from jaxrl.runs.checkpoint import checkpoint_record

    shard = {"file": "0-0", "start": [0], "shape": [2], "digest": "00"}
    described = {"dtype": "uint8", "shape": [2], "shards": [shard]}
    good = checkpoint_record.Record(
        5, None, {}, {"w": {"dtype": "uint8", "shape": [2], "digest": "00"}}, {"x": described}
    )
    assert checkpoint_record.parse(json.dumps(good.sealed())) == good
    wrong: Sequence[dict[str, Any]] = (
        {"file": "../0-0"},
        {"file": "0-0\n"},
        {"start": [1]},
        {"shape": [1]},
        {"shape": [1, 2]},
        {"start": [-1]},
        {"digest": 1},
    )
    for change in wrong:
        content = dataclasses.asdict(good)
        content["memory"] = {"x": described | {"shards": [shard | change]}}
        with pytest.raises(ValueError, match="the array x: "):
            checkpoint_record.parse(json.dumps(checkpoint_record.seal(content)))
    for nothing in (None, {}, [], 5):
        content = dataclasses.asdict(good) | {"memory": nothing}
        with pytest.raises(ValueError, match="`memory`"):
            checkpoint_record.parse(json.dumps(checkpoint_record.seal(content)))


@pytest.mark.slow
def test_memories_in_a_bucket_and_in_copies(
    gcs: GcsServer, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = "gs://runs/mine/checkpoints"
    save(epath.Path(address), 5, 10)  # type: ignore[arg-type]
    assert {name.split("/")[3] for name in gcs.files("runs") if "/memory/" in name} == {"10"}
    assert_bitwise_equal(restored(epath.Path(address))[1], state_at(10))  # type: ignore[arg-type]
    # From a disk to a bucket and back: a checkpoint is complete only after its memory.
    save(folder, 5, 10)
    order: list[str] = []
    sync(str(folder.parent), "gs://runs/copy", tell=lambda line: order.append(line.split()[-1]))
    last = max(i for i, path in enumerate(order) if path.startswith("checkpoints/memory/10/"))
    assert last < min(i for i, path in enumerate(order) if path.startswith("checkpoints/10/"))
    copied = epath.Path("gs://runs/copy/checkpoints")
    assert_bitwise_equal(restored(copied)[1], state_at(10))  # type: ignore[arg-type]
    sync("gs://runs/copy", str(tmp_path / "back"), tell=lambda line: None)
    assert_bitwise_equal(restored(tmp_path / "back" / "checkpoints")[1], state_at(10))
    assert not [record for record in caplog.records if record.name.startswith("jaxrl")]


_DEVICES = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from pathlib import Path
from jaxrl.runs.checkpoint import Checkpointer, memory_item
from tests.runs.checkpoint.test_memory_item import state_at
from tests.runs.checkpoint.checkpoints import assert_bitwise_equal

memory_item.BLOCK_BYTES = 100

def placed(count):
    mesh = Mesh(np.array(jax.devices()[:count]), ("data",))
    def put(path, x):
        rows = "rows" in jax.tree_util.keystr(path)
        return jax.device_put(x, NamedSharding(mesh, P(None, "data") if rows else P()))
    return jax.tree_util.tree_map_with_path(put, state_at(5))

for saved, read in ((1, 4), (2, 1), (4, 2), (2, 2)):
    folder = Path(sys.argv[1]) / f"{saved} to {read}"
    checkpointer = Checkpointer(str(folder))
    checkpointer.save(5, placed(saved), {})
    checkpointer.close()
    files = [file.name for file in (folder / "memory" / "5").iterdir()]
    assert len(files) == 4 * saved + 2, files  # what every device holds is written once
    wanted = placed(read)
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), wanted)
    step, state, _ = Checkpointer(str(folder)).restore_latest(abstract)
    assert_bitwise_equal(state, wanted)
    assert all(jax.tree.leaves(jax.tree.map(lambda x, y: x.sharding == y.sharding, state, wanted)))
"""


@pytest.mark.slow
def test_another_number_of_devices(tmp_path: Path) -> None:
    processes.succeed("-c", _DEVICES, str(tmp_path), devices=4)
