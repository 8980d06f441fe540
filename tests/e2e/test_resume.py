"""A run that was stopped and started again is, bit for bit, the run that was not."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import resolve
from jaxrl.reporting.writers import JsonlWriter, MultiWriter, Writer
from jaxrl.runs.checkpoint import SaveError, background_save
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.training.run import run
from jaxrl.training.trainer import Trainer
from jaxrl.types import TrainState
from tests.compiled_trainers import assembly_of, compile_once
from tests.runs.checkpoint.checkpoints import assert_bitwise_equal

STEPS = 16 * 8  # of one iteration
ITERATIONS = 6


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once(monkeypatch)


class Killed(BaseException):
    """No failure of the writer: those do not stop training."""


class Kill(Writer):
    """Ends the process, as far as the trainer can tell, when a step is logged."""

    def __init__(self, step: int) -> None:
        self._step = step

    def write(self, step: int, scalars: Any) -> None:
        if step >= self._step:
            raise Killed


def tiny_config(iterations: int = ITERATIONS, schedule: str = "linear") -> ConfigDict:
    """Everything that has a state of its own: an LSTM, both normalisers, staggered environments, reports."""
    config = jaxrl.default_config()
    config.env.update(name="gymnax:CartPole-v1", num_envs=16)
    config.env.wrappers = ("limit_cost(index=2, bound=0.05)",)
    config.network.update(core="lstm", hidden_sizes=(8,), core_size=8)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=8, sequence_length=4, num_epochs=1, num_minibatches=2)
    config.ppo.update(learning_rate=1e-2, schedule=schedule)
    config.stop.steps = iterations * STEPS
    config.log.update(every_steps=STEPS, layers=False)
    config.evaluate.update(every_steps=2 * STEPS, episodes=4, modes=("greedy",))
    config.checkpoint.update(every_steps=2 * STEPS, keep=2)
    return config


def plain_config(iterations: int, schedule: str = "constant") -> ConfigDict:
    """What compiles soon, for all else that a resume does."""
    config = tiny_config(iterations, schedule)
    config.env.wrappers = ()
    config.network.core = "none"
    config.normalize.rewards = False
    return config


def train(folder: Path, config: ConfigDict, *others: Writer) -> TrainState:
    run = RunFolder(str(folder), keep=2)
    run.create()
    writer = MultiWriter([JsonlWriter(folder / "metrics.jsonl"), *others])
    resolved = resolve(config, 1)
    trainer = Trainer(resolved, run, writer, assembly_of(resolved))
    try:
        trainer.fit()
    finally:
        writer.close()
        run.checkpoints.close()
    return trainer.state


def rows(folder: Path) -> list[dict[str, Any]]:
    """The logged metrics without those of the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(("time", "host"))} for line in lines
    ]


def training_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for row in rows(folder) if "loss/policy" in row]


def test_killed_run_goes_on_bitwise(tmp_path: Path) -> None:
    # correctness 18: with the linear schedule, which goes on from the updates made, not from zero.
    straight = train(tmp_path / "straight", tiny_config())
    assert int(straight.iteration) == ITERATIONS

    # Killed while the 5th iteration is reported: a row of it is in the file, its state is not saved.
    with pytest.raises(Killed):
        train(tmp_path / "killed", tiny_config(), Kill(5 * STEPS))
    assert rows(tmp_path / "killed")[-1]["step"] == 5 * STEPS
    assert RunFolder(str(tmp_path / "killed")).checkpoints.latest_step() == 4 * STEPS

    resumed = train(tmp_path / "killed", tiny_config())
    assert_bitwise_equal(resumed, straight)
    # Every row once, with the same numbers: the torn one was dropped and made again.
    assert rows(tmp_path / "killed") == rows(tmp_path / "straight")
    assert any("env/cost" in row for row in training_rows(tmp_path / "killed"))


@pytest.mark.slow
def test_a_checkpoint_of_another_run_is_not_taken_for_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = plain_config(2)
    ours = train(tmp_path / "ours", config)
    other = plain_config(4)
    other.seed = 7
    train(tmp_path / "theirs", other)
    shutil.copytree(
        tmp_path / "theirs" / "checkpoints" / str(4 * STEPS),
        tmp_path / "ours" / "checkpoints" / str(4 * STEPS),
    )
    assert_bitwise_equal(train(tmp_path / "ours", config), ours)
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "it was saved by another run (of seed 7; this one has 0)" in said
    assert (tmp_path / "ours" / "corrupt" / str(4 * STEPS)).is_dir()
    # A copy of the whole folder is the same run.
    shutil.copytree(tmp_path / "ours", tmp_path / "copy")
    (tmp_path / "copy" / ".run").unlink()
    assert_bitwise_equal(train(tmp_path / "copy", config), ours)


@pytest.mark.slow
def test_a_run_whose_last_checkpoint_is_unusable_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under the folder's own name Orbax writes what nobody can read, and says nothing.
    folder = tmp_path / "lr=[0.1]"
    with monkeypatch.context() as raw:
        raw.setattr(background_save, "plain_path", contextlib.nullcontext)
        with pytest.raises(SaveError, match="it cannot be read back") as caught:
            train(folder, plain_config(2))
        assert caught.value.exit_code == 1
    state = train(folder, plain_config(2))
    assert_bitwise_equal(train(folder, plain_config(2)), state)


@pytest.mark.slow
def test_finished_run_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    # With a constant learning rate the budget changes nothing else.
    straight = train(tmp_path / "straight", plain_config(5))
    train(tmp_path / "extended", plain_config(3))
    extended = train(tmp_path / "extended", plain_config(5))
    assert_bitwise_equal(extended, straight)
    assert training_rows(tmp_path / "extended") == training_rows(tmp_path / "straight")


@pytest.mark.slow
def test_used_up_budget_changes_nothing(tmp_path: Path) -> None:
    config = tiny_config()
    config.evaluate.every_steps = 2 * STEPS
    finished = train(tmp_path, config)
    logged = rows(tmp_path)
    assert_bitwise_equal(train(tmp_path, config), finished)
    assert rows(tmp_path) == logged


class Lines(Writer):
    """Keeps the lines that are shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, step: int, scalars: Any) -> None:
        """Rows are for others."""

    def message(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.slow
def test_a_longer_plan_says_that_the_learning_rate_goes_up(tmp_path: Path) -> None:
    shown, again = Lines(), Lines()
    train(tmp_path, plain_config(3, schedule="linear"), shown)
    train(tmp_path, plain_config(5, schedule="linear"), shown)
    train(tmp_path, plain_config(5, schedule="linear"), again)
    assert again.lines == []
    (line,) = shown.lines
    # The first iteration makes no update; of two each, 4 of 6 planned were made, and now 4 of 10.
    assert line.startswith("learning rate resumes at 0.0060, after 0.0050:")
    assert line.endswith(f"the schedule ends at step {5 * STEPS} now, not at step {3 * STEPS}")


@pytest.mark.slow
def test_schedules_end_with_a_run_whose_minibatches_changed(tmp_path: Path) -> None:
    """The learning rate by hand: the share that is left of the updates planned over the whole run."""
    given = [(4, 2), (6, 1), (8, 1)]  # iterations, and minibatches of each
    for iterations, minibatches in given:
        config = plain_config(iterations, schedule="linear")
        config.ppo.num_minibatches = minibatches
        assert run(config, str(tmp_path), Interruption()).exit_code == 0
    rates = [row["ppo/learning_rate"] for row in training_rows(tmp_path)]
    # The first iteration makes no update of its two. A row has the mean of its updates' rates.
    first = [1 - (updates + 0.5) / 8 for updates in (0, 2, 4)]
    second = [1 - updates / (8 + 2) for updates in (6, 7)]
    third = [1 - updates / (8 + 4) for updates in (8, 9)]
    np.testing.assert_allclose(rates, 1e-2 * np.array([*first, *second, *third]), rtol=1e-5)


@pytest.mark.slow
def test_a_run_that_continues_with_another_jax_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Lines()
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version__", "0.9.99")
        train(tmp_path, plain_config(3), shown)
    train(tmp_path, plain_config(5), shown)
    (line,) = shown.lines
    assert line.startswith(f"saved with jax 0.9.99, continued with jax {jax.__version__}: ")


@pytest.mark.slow
def test_reached_return_is_remembered(tmp_path: Path) -> None:
    # Otherwise the same command would train on, past the very result that it was stopped for.
    config = plain_config(ITERATIONS)
    config.stop["return"] = 1.0  # any episode of CartPole
    first = train(tmp_path, config)
    assert int(first.iteration) == 2
    assert_bitwise_equal(train(tmp_path, config), first)


@pytest.mark.slow
def test_changed_hyperparameters_hold_after_a_resume(tmp_path: Path) -> None:
    train(tmp_path, plain_config(3))
    config = plain_config(5)
    config.ppo.learning_rate = 5e-3
    state = train(tmp_path, config)
    assert float(state.learner.hyperparams.learning_rate) == np.float32(5e-3)
    # The first iteration makes no update.
    rates = [row["ppo/learning_rate"] for row in training_rows(tmp_path)]
    np.testing.assert_allclose(rates, [1e-2, 1e-2, 5e-3, 5e-3], rtol=1e-6)
