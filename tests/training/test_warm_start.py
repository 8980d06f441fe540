"""`init_from`: what is taken from another run, what is left and why, and what is refused."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.rollout_state import RolloutState
from jaxrl.config import ConfigError, to_json
from jaxrl.main import main
from jaxrl.runs.checkpoint import Checkpointer, state_arrays
from jaxrl.runs.checkpoint.checkpoint_folder import CheckpointError, CorruptCheckpoint
from jaxrl.runs.folder import RunFolder
from jaxrl.training.start import warm_start
from jaxrl.training.trainer import Trainer
from jaxrl.types import TrainState
from tests.compiled_programs import tiny_config, tiny_program, with_policy
from tests.inference.runs import save_run
from tests.runs.checkpoint.checkpoints import assert_bitwise_equal, flip_largest

FIELDS: dict[str, Any] = {"normalize.observations": True, "normalize.rewards": True}
TAKEN = ("params", "obs_stats", "reward_stats")
STEP = 640


@functools.cache
def _shapes(*fields: tuple[str, Any]) -> RolloutState:
    return jax.eval_shape(tiny_program(**dict(fields)).init, jax.random.key(0)).learner


def state_of(seed: int, **fields: Any) -> RolloutState:
    """With random numbers: making fresh ones is a program for each network."""
    rng = np.random.default_rng(seed)
    draw = lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype)  # noqa: E731
    return jax.tree.map(draw, _shapes(*(FIELDS | fields).items()))


def plain_state(seed: int) -> RolloutState:
    """Without normalisers."""
    return state_of(seed, **dict.fromkeys(FIELDS, False))


def with_statistics(state: RolloutState) -> RolloutState:
    """Statistics as after some training."""
    moved = jax.tree.map(lambda x: x + 7, (state.policy.obs_stats, state.reward_stats))
    policy = dataclasses.replace(state.policy, obs_stats=moved[0])
    return dataclasses.replace(state, policy=policy, reward_stats=moved[1])


def parts_of(state: RolloutState) -> dict[str, Any]:
    """The parts that may be taken over, by the names users know."""
    policy = state.policy
    return {"params": policy.params, "obs_stats": policy.obs_stats, "reward_stats": state.reward_stats}


def names_of(state: RolloutState, *fields: str) -> set[str]:
    return set(state_arrays.flat(state_arrays.to_arrays({f: parts_of(state)[f] for f in fields})))


def save(folder: Path, *states: tuple[int, RolloutState]) -> None:
    checkpointer = Checkpointer(str(folder / "checkpoints"), keep=2)
    for step, state in states:
        checkpointer.save(step, {"learner": state}, {})
    checkpointer.close()


@pytest.fixture(scope="module")
def theirs() -> RolloutState:
    return with_statistics(state_of(seed=1))


@pytest.fixture(scope="module")
def run(theirs: RolloutState, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints, the newest of the state `theirs`."""
    folder = tmp_path_factory.mktemp("theirs")
    save(folder, (STEP // 2, state_of(seed=2)), (STEP, theirs))
    return folder


@pytest.mark.slow
def test_parameters_and_normalisers_are_taken_and_nothing_else(run: Path, theirs: RolloutState) -> None:
    fresh = state_of(seed=0)
    state, report = warm_start(str(run), ("*",), fresh)
    assert_bitwise_equal(state.policy, theirs.policy)
    assert_bitwise_equal(state.reward_stats, theirs.reward_stats)
    for name in ("hyperparams", "updates", "opt_state", "discounted_return"):
        assert_bitwise_equal(getattr(state, name), getattr(fresh, name))
    assert set(report.loaded) == names_of(fresh, *TAKEN)
    assert report.left == {}
    assert str(report) == f"{len(report.loaded)} arrays from {run / 'checkpoints' / str(STEP)}"
    shardings = (jax.tree.map(lambda x: x.sharding, s) for s in (state, fresh))
    assert next(shardings) == next(shardings)


@pytest.mark.slow
def test_one_checkpoint_can_be_named(run: Path) -> None:
    state, report = warm_start(str(run / "checkpoints" / str(STEP // 2)), ("*",), state_of(seed=0))
    assert_bitwise_equal(state.policy.params, state_of(seed=2).policy.params)
    assert report.path.name == str(STEP // 2)


def test_patterns_choose_by_name(run: Path, theirs: RolloutState) -> None:
    fresh = state_of(seed=0)
    state, report = warm_start(str(run), ("params/*/Dense_0/*", "params/value/bias"), fresh)
    chosen = {name for name in names_of(fresh, "params") if "/Dense_0/" in name} | {"params/value/bias"}
    assert set(report.loaded) == chosen
    assert set(report.left) == names_of(fresh, *TAKEN) - chosen
    assert set(report.left.values()) <= {"not among `init_names`", "its normaliser is not taken whole"}
    mixed = state_arrays.flat(state_arrays.to_arrays({"params": state.policy.params}))
    theirs_flat, fresh_flat = (
        state_arrays.flat(state_arrays.to_arrays({"params": s.policy.params})) for s in (theirs, fresh)
    )
    for name, x in mixed.items():
        np.testing.assert_array_equal(x, (theirs_flat if name in chosen else fresh_flat)[name], err_msg=name)
    assert_bitwise_equal(state.policy.obs_stats, fresh.policy.obs_stats)
    assert "; fresh: " in str(report)
    assert "params/value/kernel (not among `init_names`)" in str(report)


def test_what_does_not_fit_is_left_and_named(run: Path) -> None:
    # A network with one layer more: what lies before it is of use.
    fresh = state_of(seed=0, **{"network.hidden_sizes": (8, 4)})
    state, report = warm_start(str(run), ("*",), fresh)
    assert {
        "params/MLP_0/Dense_1/kernel": "not in the checkpoint",
        "params/Recurrent_0/input": "float32[8, 32] there, float32[4, 32] here",
    }.items() <= report.left.items()
    assert "params/MLP_0/Dense_0/kernel" in report.loaded
    assert_bitwise_equal(
        state.policy.params["Recurrent_0"]["input"], fresh.policy.params["Recurrent_0"]["input"]
    )


@pytest.mark.parametrize("pattern", ["obs_stats/mean/*", "obs_stats/count"])
def test_a_normaliser_is_taken_whole_or_not_at_all(run: Path, pattern: str) -> None:
    fresh = state_of(seed=0)
    state, report = warm_start(str(run), ("params/*", pattern), fresh)
    assert_bitwise_equal(state.policy.obs_stats, fresh.policy.obs_stats)
    left = {name: why for name, why in report.left.items() if name.startswith("obs_stats/")}
    assert left.keys() == names_of(fresh, "obs_stats")
    assert set(left.values()) == {"not among `init_names`", "its normaliser is not taken whole"}


@pytest.mark.slow
def test_a_normaliser_that_the_other_run_lacks_stays_fresh(tmp_path: Path) -> None:
    plain = plain_state(seed=1)
    save(tmp_path, (1, plain))
    fresh = state_of(seed=0)
    state, report = warm_start(str(tmp_path), ("*",), fresh)
    assert_bitwise_equal(state.policy.params, plain.policy.params)
    assert report.left == dict.fromkeys(names_of(fresh, "obs_stats", "reward_stats"), "not in the checkpoint")


def test_a_normaliser_that_this_run_lacks_is_not_asked_for(run: Path, theirs: RolloutState) -> None:
    state, report = warm_start(str(run), ("*",), plain_state(seed=0))
    assert (state.policy.obs_stats, state.reward_stats, report.left) == (None, None, {})
    assert_bitwise_equal(state.policy.params, theirs.policy.params)


def test_a_pattern_that_fits_nothing_is_refused_with_the_names_there_are(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"`init_names` \(='encoder\*'\) fits no array.*params/value/bias"):
        warm_start(str(run), ("params/*", "encoder*"), state_of(seed=0))


def test_nothing_to_take_is_refused(tmp_path: Path) -> None:
    checkpointer = Checkpointer(str(tmp_path / "checkpoints"))
    checkpointer.save(1, {"learner": {"policy": {"params": {"other": jnp.zeros(3)}}}}, {})
    checkpointer.close()
    with pytest.raises(
        ConfigError, match=r"`init_from` \(=.*\) gives nothing to this network: params/.*\(not in"
    ):
        warm_start(str(tmp_path), ("*",), state_of(seed=0))


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="`init_from` .* holds no checkpoint"):
        warm_start(str(tmp_path), ("*",), state_of(seed=0))


def test_a_damaged_checkpoint_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    # It belongs to another run: nothing there is moved, and an older one would be a silent surprise.
    state = state_of(seed=1)
    noise = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    params = state.policy.params | {"bulk": noise}
    bulky = dataclasses.replace(state, policy=dataclasses.replace(state.policy, params=params))
    save(tmp_path, (1, bulky), (2, bulky))
    flip_largest(tmp_path / "checkpoints" / "2")
    with pytest.raises(
        CorruptCheckpoint, match="checkpoints/2 is damaged: the array learner/policy/params/bulk is not what"
    ):
        warm_start(str(tmp_path), ("*",), bulky)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]
    assert {"1", "2"} <= {path.name for path in (tmp_path / "checkpoints").iterdir()}


class TestPrecedence:
    """Own folder, then `init_from`, then fresh."""

    def trainer(self, folder: Path, **fields: Any) -> Trainer:
        run = RunFolder(str(folder))
        run.create()
        return Trainer(tiny_config(num_devices=1, **FIELDS | fields), run)

    @pytest.mark.slow
    def test_fresh_then_warm_then_own(self, tmp_path: Path) -> None:
        first = self.trainer(tmp_path / "first")
        first.start()
        fresh = first.state.learner.policy.params
        other = self.trainer(tmp_path / "other", seed=3)
        params = jax.tree.map(lambda x: x + 1, other.state.learner.policy.params)
        moved = with_policy(other.state, params=params)
        self.save(other, moved, steps=STEP)

        warm = self.trainer(tmp_path / "warm", init_from=str(tmp_path / "other"))
        # A custom loop calls no start(): its first step, or a look at the state, does.
        assert_bitwise_equal(warm.state.learner.policy.params, moved.learner.policy.params)
        assert (warm.steps, int(warm.state.iteration)) == (0, 0)
        assert_bitwise_equal(warm.state.learner.opt_state, first.state.learner.opt_state)

        own = jax.tree.map(lambda x: x - 1, fresh)
        self.save(warm, with_policy(warm.state, params=own), steps=128)
        again = self.trainer(tmp_path / "warm", init_from=str(tmp_path / "other"))
        assert_bitwise_equal(again.state.learner.policy.params, own)
        assert again.steps == 128

        # Where there is nothing to read any more, a run that resumes does not miss it.
        gone = self.trainer(tmp_path / "warm", init_from=str(tmp_path / "gone"))
        gone.start()
        assert gone.steps == 128

    def save(self, trainer: Trainer, state: TrainState, steps: int) -> None:
        assert trainer.folder is not None
        progress = dataclasses.replace(trainer.progress, iteration=steps // 128, seconds=1.0)
        meta = {"config": to_json(trainer.config)} | progress.to_json()
        learner = dataclasses.replace(state.learner, planned=None)  # which checkpoints do not hold
        state = dataclasses.replace(state, learner=learner)
        trainer.folder.checkpoints.save(steps, state, json.loads(json.dumps(meta)))
        trainer.folder.checkpoints.close()


def test_names_that_fit_nothing_leave_no_run_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_run(tmp_path / "source")
    flags = [f"--config.init_from={tmp_path / 'source'}", "--config.init_names=params/nothing*"]
    flags.append(f"--workdir={tmp_path / 'new'}")
    assert main(["jaxrl", "--config=ppo", "--config.num_devices=1", *flags]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: `init_names` (='params/nothing*') fits no array of this network")
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()
