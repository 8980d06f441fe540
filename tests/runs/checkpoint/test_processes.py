"""Checkpoints of several processes: one digest for the whole array, one decision about damage for all."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

_PROCESS = """
import json, sys
from pathlib import Path
import jax
import numpy as np

index, count, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
jax.config.update("jax_num_cpu_devices", 2)
if count > 1:
    jax.distributed.initialize(f"localhost:{port}", count, index, initialization_timeout=60)

from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxrl.parallel import process_group
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.checkpoint.checkpoint_folder import open_folder, read_record
from tests.runs.checkpoint.checkpoints import flip_largest

mesh = Mesh(np.array(jax.devices()), ("data",))

def put(x, *spec):
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, PartitionSpec(*spec)), lambda i: x[i])

def state_at(step):
    head = np.random.default_rng(step).normal(size=(64, 32)).astype(np.float32)
    keys = put(np.arange(16, dtype=np.uint32).reshape(8, 2) + step, "data")
    return {"obs": put(np.arange(8, dtype=np.float32) + step, "data"), "head": put(head),
            "keys": jax.random.wrap_key_data(keys)}

def parts(x):
    x = jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return [np.asarray(shard.data).tobytes() for shard in x.addressable_shards]

assert process_group.everywhere({"index": index, "text": "x" * index}) == [
    {"index": i, "text": "x" * i} for i in range(count)
]
checkpointer = Checkpointer(str(folder), keep=2)
for step in (5, 10, 15):
    assert checkpointer.save(step, state_at(step), {"iteration": step}, score=-step)
checkpointer.wait()
digests = {name: array["digest"] for name, array in read_record(open_folder(folder) / "15").arrays.items()}
process_group.everywhere(None)
if process_group.is_first():
    flip_largest(folder / "15")
process_group.everywhere(None)
abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state_at(0))
step, state, meta = checkpointer.restore_latest(abstract)
assert {name: parts(x) for name, x in state.items()} == {name: parts(x) for name, x in state_at(step).items()}
assert checkpointer.save(15, state_at(15), {"iteration": 15})
checkpointer.close()
print("REPORT" + json.dumps({"step": step, "meta": meta, "digests": digests}))
"""


_MEMORY = """
import json, sys
from pathlib import Path
from typing import Annotated, Any
import flax.struct
import jax
import numpy as np

index, count, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
jax.config.update("jax_num_cpu_devices", 2)
if count > 1:
    jax.distributed.initialize(f"localhost:{port}", count, index, initialization_timeout=60)

from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxrl.parallel import process_group
from jaxrl.runs.checkpoint import Checkpointer, SaveError, memory_item
from jaxrl.types import Bulk

@flax.struct.dataclass
class Ring:
    rows: Annotated[Any, Bulk()]
    cursor: Any

memory_item.BLOCK_BYTES = 64
mesh = Mesh(np.array(jax.devices()), ("data",))

def put(x, *spec):
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, PartitionSpec(*spec)), lambda i: x[i])

def state_at(step):
    rows = np.random.default_rng(step).normal(size=(16, 8, 3)).astype(np.float32)
    return {"w": put(np.float32([step])), "memory": Ring(put(rows, None, "data"), put(np.int32(step)))}

def parts(state):
    return [np.asarray(s.data).tobytes() for x in jax.tree.leaves(state) for s in x.addressable_shards]

checkpointer = Checkpointer(str(folder), keep=2)
for step in (5, 10):
    state = state_at(step)
    assert checkpointer.save(step, state, {})
checkpointer.wait()
write = memory_item.write_rows
if index == count - 1:
    memory_item.write_rows = lambda *arguments: open("/nowhere/x", "wb")
try:
    checkpointer.save(15, state_at(15), {})
except SaveError as error:
    problem = error.reason
memory_item.write_rows = write
abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state_at(0))
step, state, _ = Checkpointer(str(folder), keep=2).restore_latest(abstract)
assert parts(state) == parts(state_at(10))
process_group.everywhere(None)
if process_group.is_first():
    max((folder / "memory" / "10").iterdir()).unlink()
process_group.everywhere(None)
_, state, _ = Checkpointer(str(folder), keep=2).restore_latest(abstract)
assert state["memory"] is None
assert checkpointer.save(15, state_at(15), {})
checkpointer.close()
process_group.everywhere(None)
print("REPORT" + json.dumps({"step": step, "problem": problem}))
"""


def run(folder: Path, count: int, script: str = _PROCESS) -> list[dict[str, object]]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {
        "JAX_PLATFORMS": "cpu"
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(index), str(count), str(port), str(folder)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(count)
    ]
    reports = []
    try:
        for process in processes:
            output = process.communicate(timeout=120)[0]
            assert process.returncode == 0, output
            reports += [json.loads(x[6:]) for x in output.splitlines() if x.startswith("REPORT")]
    finally:
        for process in processes:
            process.kill()
    return reports


@pytest.mark.slow
def test_two_processes_save_verify_and_fall_back_as_one(tmp_path: Path) -> None:
    two = run(tmp_path / "two" / "checkpoints", 2)
    one = run(tmp_path / "one" / "checkpoints", 1)
    assert two == one * 2
    assert (two[0]["step"], two[0]["meta"]) == (10, {"iteration": 10})
    for name in ("one", "two"):
        assert [path.name for path in (tmp_path / name / "corrupt").iterdir()] == ["15"]
        steps = sorted(path.name for path in (tmp_path / name / "checkpoints").iterdir())
        assert steps == [".started", "10", "15", "5"]


@pytest.mark.slow
def test_each_of_two_processes_writes_its_own_rows(tmp_path: Path) -> None:
    two = run(tmp_path / "two" / "checkpoints", 2, _MEMORY)
    assert two == [{"step": 10, "problem": "No such file or directory: /nowhere/x"}] * 2
    files = sorted((tmp_path / "two" / "checkpoints" / "memory" / "15").iterdir())
    assert [file.stat().st_size for file in files] == [16 * 2 * 3 * 4] * 4
