"""Checkpoints: complete, bitwise, safe under donation, and clear about what is missing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.runs.checkpoint import Checkpointer, CheckpointError
from jaxrl.types import TrainState
from tests import processes
from tests.runs.checkpoint.checkpoints import abstract_of, assert_bitwise_equal, make_state


@pytest.fixture
def checkpointer(tmp_path: Path) -> Any:
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"), keep=2)
    yield checkpointer
    checkpointer.close()


def test_whole_state_round_trips_bitwise(checkpointer: Checkpointer, tmp_path: Path) -> None:
    # Correctness 18: a resume is bitwise equal to an uninterrupted run, so nothing may be lost or cast.
    state = make_state()
    meta = {"iteration": 12, "config": {"seed": 3, "sizes": [1, 2]}, "seconds": 1.5}
    assert checkpointer.save(100, state, meta, score=1.0)
    checkpointer.wait()

    reader = Checkpointer(str(tmp_path / "checkpoints"), create=False)
    restored, restored_meta = reader.restore(100, abstract_of(state))
    reader.close()
    assert isinstance(restored, TrainState)
    assert_bitwise_equal(restored, state)
    assert restored_meta == meta


@pytest.mark.slow
def test_donating_the_state_right_after_save_does_not_reach_the_checkpoint(
    checkpointer: Checkpointer,
) -> None:
    # On CPU a host copy of an array may be a view of its buffer. The training loop donates the state to
    # the next dispatch while the checkpoint is still being written: a view of a reused buffer would be
    # stored with the next iteration's numbers in it. 64 MB take far longer to write than to overwrite.
    advance = jax.jit(lambda x: x * 1.5 + 1.0, donate_argnums=0)
    noise = np.random.default_rng(0).normal(size=(8, 1 << 20)).astype(np.float32)
    params = advance({"w": jnp.asarray(noise), "v": jnp.asarray(noise) + 1}["w"])
    params.block_until_ready()
    expected = np.array(params, copy=True)

    checkpointer.save(1, {"params": params}, {})
    for _ in range(5):
        params = advance(params)
    params.block_until_ready()
    checkpointer.wait()

    restored, _ = checkpointer.restore(1, {"params": abstract_of(params)})
    np.testing.assert_array_equal(np.asarray(restored["params"]), expected)


def test_partial_restore_needs_no_environment_state(checkpointer: Checkpointer) -> None:
    state = make_state()
    checkpointer.save(5, state, {})
    abstract = {
        "learner/policy": abstract_of(state.learner.policy),
        "iteration": abstract_of(state.iteration),
    }
    restored = checkpointer.restore_partial(5, ("learner/policy", "iteration"), abstract)
    assert sorted(restored) == ["iteration", "learner/policy"]
    assert restored["learner/policy"].obs_stats is None
    assert_bitwise_equal(restored["learner/policy"], state.learner.policy)
    assert_bitwise_equal(restored["iteration"], state.iteration)


def test_keeps_the_latest_and_the_best(checkpointer: Checkpointer) -> None:
    state = {"params": jnp.zeros(2)}
    for step, score in [(1, 3.0), (2, 9.0), (3, None), (4, float("nan")), (5, 4.0)]:
        checkpointer.save(step, state, {}, score)
    checkpointer.wait()
    # keep=2 keeps 4 and 5; 2 has the best score.
    assert checkpointer.all_steps() == (2, 4, 5)
    assert checkpointer.latest_step() == 5
    assert checkpointer.best_step() == 2


def test_the_best_is_known_after_reopening(checkpointer: Checkpointer, tmp_path: Path) -> None:
    state = {"params": jnp.zeros(2)}
    checkpointer.save(1, state, {}, -1.0)
    checkpointer.save(2, state, {}, -2.0)
    checkpointer.save(3, state, {})
    checkpointer.save(4, state, {})
    checkpointer.wait()
    reopened = Checkpointer(str(tmp_path / "checkpoints"), keep=2)
    assert reopened.best_step() == 1
    reopened.save(5, state, {}, -3.0)
    reopened.wait()
    assert reopened.all_steps() == (1, 4, 5)
    reopened.close()


def test_no_best_without_scores(checkpointer: Checkpointer) -> None:
    assert checkpointer.best_step() is None
    checkpointer.save(1, {"params": jnp.zeros(2)}, {})
    assert checkpointer.best_step() is None


def test_a_step_is_saved_once_and_never_lost_in_silence(checkpointer: Checkpointer) -> None:
    assert checkpointer.save(10, {"params": jnp.zeros(2)}, {})
    assert not checkpointer.save(10, {"params": jnp.ones(2)}, {})
    with pytest.raises(CheckpointError, match="step 9 was not saved: .* already holds step 10"):
        checkpointer.save(9, {"params": jnp.zeros(2)}, {})
    restored, _ = checkpointer.restore(10, {"params": jax.ShapeDtypeStruct((2,), jnp.float32)})
    np.testing.assert_array_equal(restored["params"], [0.0, 0.0])


def test_missing_folder_and_step_are_named(checkpointer: Checkpointer, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"no folder {tmp_path / 'absent'}"):
        Checkpointer(str(tmp_path / "absent"), create=False)
    assert not (tmp_path / "absent").exists()
    assert checkpointer.latest_step() is None
    with pytest.raises(CheckpointError, match="no checkpoint of step 3 in .*; available steps: none"):
        checkpointer.meta(3)
    checkpointer.save(1, {"params": jnp.zeros(2)}, {})
    with pytest.raises(CheckpointError, match="available steps: 1"):
        checkpointer.restore(3, {"params": jax.ShapeDtypeStruct((2,), jnp.float32)})


@pytest.mark.parametrize(
    ("abstract", "message"),
    [
        ({"w": jax.ShapeDtypeStruct((3,), jnp.float32)}, r"params/w is float32\[2\] there and float32\[3\]"),
        ({"w": jax.ShapeDtypeStruct((2,), jnp.bfloat16)}, r"is float32\[2\] there and bfloat16\[2\] in"),
        ({"v": jax.ShapeDtypeStruct((2,), jnp.float32)}, r"params/v is absent there and float32\[2\] in"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    checkpointer: Checkpointer, abstract: Any, message: str
) -> None:
    # Orbax by itself casts float32 to bfloat16 in silence.
    checkpointer.save(1, {"params": {"w": jnp.zeros(2)}, "obs": jnp.zeros(1)}, {})
    with pytest.raises(CheckpointError, match=message):
        checkpointer.restore_partial(1, ("params",), {"params": abstract})


def test_another_random_number_generator_is_refused(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"key": jax.random.key(0, impl="rbg")}, {})
    with pytest.raises(CheckpointError, match="key/:rbg"):
        checkpointer.restore(1, {"key": abstract_of(jax.random.key(0, impl="unsafe_rbg"))})


def test_a_state_of_another_version_is_refused(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"params": jnp.zeros(2), "key": jax.random.key(0)}, {})
    state = {"learner": {"params": jnp.zeros(2)}, "key": jax.random.key(0)}
    with pytest.raises(
        CheckpointError, match="another version of jaxrl: it has no learner, it holds key, params"
    ):
        checkpointer.restore(1, abstract_of(state))


def test_a_field_that_is_stored_but_not_asked_for_is_refused(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"params": jnp.zeros(2), "obs_stats": jnp.zeros(3)}, {})
    with pytest.raises(CheckpointError, match=r"obs_stats/ is float32\[3\] there and absent in"):
        checkpointer.restore(1, {"params": jax.ShapeDtypeStruct((2,), jnp.float32), "obs_stats": None})
    with pytest.raises(CheckpointError, match=r"obs_stats/ is float32\[3\] there and absent in"):
        checkpointer.restore(1, {"params": jax.ShapeDtypeStruct((2,), jnp.float32)})


def test_paths_that_collide_are_refused(checkpointer: Checkpointer) -> None:
    with pytest.raises(ValueError, match="same path"):
        checkpointer.save(1, {"params": {"a": {"b": jnp.zeros(1)}, "a/b": jnp.zeros(1)}}, {})


@pytest.mark.parametrize(
    "value", [np.float32(-0.0), np.uint32(0x7FC12345).view(np.float32), np.float32(np.inf), np.float32(1e-45)]
)
def test_special_floats_are_kept_bit_for_bit(checkpointer: Checkpointer, value: np.float32) -> None:
    # A format that leaves out chunks of zeros must not take -0.0 for one: its digest would be another.
    state = {"params": jnp.asarray(np.full(6, value))}
    checkpointer.save(1, state, {})
    restored, _ = checkpointer.restore(1, abstract_of(state))
    assert_bitwise_equal(restored, state)


def test_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpointer = Checkpointer("run/checkpoints")
    checkpointer.save(1, {"params": jnp.zeros(2)}, {"a": 1})
    checkpointer.close()
    assert (tmp_path / "run" / "checkpoints" / "1").is_dir()


def test_orbax_does_not_chat(checkpointer: Checkpointer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logging.getLogger("absl").setLevel(logging.INFO)
        checkpointer.save(1, {"params": jnp.zeros(2)}, {})
        checkpointer.wait()
        checkpointer.meta(1)
    assert [record.getMessage() for record in caplog.records] == []


_RESHARD = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.checkpoint.checkpoint_folder import open_folder, read_record

folder, command = sys.argv[1:]
mesh = Mesh(np.array(jax.devices()), ("data",))
sharded = NamedSharding(mesh, PartitionSpec("data"))
state = {"x": jax.device_put(np.arange(8.0, dtype=np.float32), sharded),
         "keys": jax.device_put(jax.random.split(jax.random.key(5), 8), sharded)}
checkpointer = Checkpointer(folder)
if command == "save":
    checkpointer.save(1, state, {})
    checkpointer.wait()
    print(json.dumps(read_record(open_folder(folder) / "1").arrays))
else:
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharded), state)
    restored, _ = checkpointer.restore(1, abstract)
    assert len(restored["x"].addressable_shards) == len(jax.devices()), restored["x"].sharding
    assert restored["keys"].sharding.is_equivalent_to(sharded, 1), restored["keys"].sharding
    np.testing.assert_array_equal(restored["x"], state["x"])
    np.testing.assert_array_equal(jax.random.key_data(restored["keys"]), jax.random.key_data(state["keys"]))
checkpointer.close()
"""


@pytest.mark.slow
def test_restores_onto_another_number_of_devices(tmp_path: Path) -> None:
    digests = []
    for devices, folder, command in [
        (4, "checkpoints", "save"),
        (1, "checkpoints", "restore"),
        (1, "of_one", "save"),
        (2, "of_one", "restore"),
    ]:
        done = processes.succeed("-c", _RESHARD, str(tmp_path / folder), command, devices=devices)
        digests += [json.loads(line) for line in done.stdout.splitlines()]
    # Of the whole arrays, whatever devices held their parts.
    assert digests[0] == digests[1]
    assert digests[0].keys() == {"x/", "keys/:threefry2x32"}


@pytest.mark.slow
def test_importing_the_module_does_not_import_orbax() -> None:
    # The command line answers bad input and --help before anything slow is loaded.
    slow = {"orbax.checkpoint", "tensorstore"}
    code = f"import sys, jaxrl.runs.checkpoint; sys.exit(bool({slow} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
