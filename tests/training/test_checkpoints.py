"""Hyperparameters that a resume keeps, and those that the configuration may change."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.runs.folder import RunFolder
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.plan import other_jax
from jaxrl.training.progress import Progress
from tests.compiled_programs import tiny_config, with_learner


def checkpoints(folder: Path, **fields: Any) -> tuple[RunCheckpoints, DeviceRuntime]:
    run = RunFolder(str(folder), keep=2)
    run.create()
    runtime = DeviceRuntime(tiny_config(**fields), Topology.of(1))
    return RunCheckpoints(run, runtime.learning), runtime


@pytest.mark.slow
def test_resume_keeps_own_hyperparameters_and_takes_those_that_the_config_changes(tmp_path: Path) -> None:
    # A member of a population has numbers that no configuration knows: a resume must not reset them. What a
    # user changes on the command line counts all the same.
    saved, runtime = checkpoints(tmp_path, ppo__gamma=0.9, ppo__entropy_coef=0.01)
    state = runtime.learning.initial_state()
    own = dataclasses.replace(
        state.learner.hyperparams, learning_rate=jnp.float32(0.125), gamma=jnp.float32(0.5)
    )
    progress = dataclasses.replace(Progress(runtime.learning.empty_interval()), iteration=3, seconds=7.5)
    saved.save_last(with_learner(state, hyperparams=own), progress)

    again, _ = checkpoints(tmp_path, ppo__gamma=0.8, ppo__entropy_coef=0.01)
    restored = again.restore()
    assert restored is not None
    hyperparams = restored.state.learner.hyperparams
    assert hyperparams.learning_rate == np.float32(0.125)
    assert hyperparams.gamma == np.float32(0.8)
    assert hyperparams.entropy_coef == np.float32(0.01)
    assert (restored.progress.iteration, restored.progress.seconds) == (3, 7.5)
    assert restored.progress.evaluation is None


@pytest.mark.slow
def test_what_a_resume_thaws_learns_with_a_fresh_adam(tmp_path: Path) -> None:
    # Adam counted updates in which frozen parameters had no gradients: with moments of 0 and a large count
    # their first steps would be several times too long.
    frozen = ("params/*/kernel", "params/*/bias")
    saved, runtime = checkpoints(tmp_path, network__frozen=frozen)
    state = runtime.learning.initial_state()
    used = jax.tree.map(jnp.ones_like, state.learner.opt_state)
    progress = dataclasses.replace(Progress(runtime.learning.empty_interval()), iteration=3)
    saved.save_last(with_learner(state, opt_state=used), progress)
    for patterns, thaws in ((frozen[:1], True), (frozen, False), ((*frozen, "params/*"), False)):
        restored = checkpoints(tmp_path, network__frozen=patterns)[0].restore()
        assert restored is not None
        moments = jax.tree.leaves(restored.state.learner.opt_state)
        assert all((np.asarray(x) == (0 if thaws else 1)).all() for x in moments)
        assert [line.startswith("Adam's state is reset") for line in restored.changes] == [True] * thaws


@pytest.mark.slow
def test_state_is_saved_once(tmp_path: Path) -> None:
    saved, runtime = checkpoints(tmp_path)
    state, progress = runtime.learning.initial_state(), Progress(runtime.learning.empty_interval())
    assert saved.save(state, progress)
    assert not saved.save(state, progress)
    assert not saved.save_last(state, progress)


@pytest.mark.slow
def test_another_version_of_jax_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, runtime = checkpoints(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", "0.9.99")
        saved.save_last(runtime.learning.initial_state(), Progress(runtime.learning.empty_interval()))
        same = saved.restore()
        assert same is not None
        assert same.changes == ()
    other = checkpoints(tmp_path)[0].restore()
    assert other is not None
    (line,) = other.changes
    assert line.startswith(f"saved with jax 0.9.99, continued with jax {jax.__version__}: ")


def test_the_version_of_jax_in_a_record_is_one_or_none() -> None:
    assert list(other_jax({})) == []  # of a checkpoint from before it was stored
    record = {"config": {}, **Progress(Interval.empty({})).to_json()}
    Progress.check(record)
    with pytest.raises(ValueError, match="`jax`"):
        Progress.check(record | {"jax": "0.1\x1b[2J"})
