"""NaN and infinities: found in their iteration, named, and answered as the configuration says."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import resolve
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.reporting.writers import MultiWriter, TensorBoardWriter, Writer
from jaxrl.runs.folder import RunFolder
from jaxrl.training import nonfinite
from jaxrl.training.callbacks import Callbacks
from jaxrl.training.coordination import Schedule
from jaxrl.training.nonfinite import MAX_ROLLBACKS, NonFiniteError
from jaxrl.training.progress import Progress
from jaxrl.training.trainer import Trainer

LENGTH, ENVS = 8, 8
STEPS = LENGTH * ENVS  # of one iteration
FAULT = 40  # the step of an episode at which `Faulty` goes wrong: the last of iteration 5


class Recorder(Writer):
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.append((step // STEPS, dict(scalars)))


def faulty(policy: str = "halt", iterations: int = 9, **fields: Any) -> ConfigDict:
    """`where`, `value`, `step`, `chance` and `length` go to the environment, the rest into the config."""
    of_env = {k: fields.pop(k) for k in ("where", "value", "step", "chance", "length") if k in fields}
    usual = {"where": "reward", "value": "nan"}  # left out, so that equal environments have one name
    arguments = ", ".join(f"{k}={value!r}" for k, value in of_env.items() if usual.get(k) != value)
    config = jaxrl.default_config()
    config.nonfinite = policy
    config.num_devices = 1
    config.env.update(name=f"tests.faults.environments:Faulty({arguments})", num_envs=ENVS, stagger=False)
    # Without a memory, which takes longest to compile, but where one could stay poisoned.
    config.network.update(
        core="gru" if policy == "skip" and of_env.get("where") == "obs" else "none",
        hidden_sizes=(4,),
        core_size=4,
    )
    config.ppo.update(rollout_length=LENGTH, num_epochs=2, num_minibatches=2, learning_rate=1e-2)
    config.stop.steps = iterations * STEPS
    config.log.update(every_steps=STEPS, layers=False)
    config.evaluate.update(every_steps=0, episodes=2, modes=("greedy",))
    config.checkpoint.every_steps = 2 * STEPS
    for name, value in fields.items():
        section, field = name.split("__")
        config[section][field] = value
    return config


def trainer(config: ConfigDict, folder: Path | None = None) -> tuple[Trainer, Recorder]:
    recorder = Recorder()
    run = None
    if folder is not None:
        run = RunFolder(str(folder))
        run.create()
    return Trainer(resolve(config, 1), run, MultiWriter([recorder])), recorder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "value", "quantity", "message"),
    [
        (
            "reward",
            "nan",
            "reward",
            "nan in reward, time step 7 of environment 0, in the rollout of iteration 5",
        ),
        # Seen one step later: the first observation of the next rollout, or the value bootstrapped from it.
        ("obs", "nan", "value of the next observation", "time step 8 of environment 0"),
    ],
)
def test_halt_keeps_the_state_before_and_names_the_value(
    tmp_path: Path, where: str, value: str, quantity: str, message: str
) -> None:
    run, _ = trainer(faulty(where=where, value=value), tmp_path)
    with pytest.raises(NonFiniteError, match=message):
        run.fit()
    assert run.progress.iteration == int(run.state.iteration) == 4
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run.state.learner.policy.params))
    assert run.folder is not None
    run.folder.checkpoints.wait()
    assert run.folder.checkpoints.latest_step() == 4 * STEPS
    report = json.loads((tmp_path / "nonfinite.json").read_text())
    assert (report["iteration"], report["quantity"]) == (5, quantity)


def stuck(policy: str) -> ConfigDict:
    """The mask allows nothing in iteration 151, after more steps than the check before training plays."""
    config = faulty(policy, iterations=153)
    config.env.name = "tests.faults.environments:Stuck(step=1200, length=2000)"
    return config


@pytest.mark.slow
def test_a_mask_that_allows_nothing_halts() -> None:
    run, _ = trainer(stuck("halt"))
    place = "time step 0 of environment 0, in the rollout of iteration 151"
    with pytest.raises(NonFiniteError, match=f"nothing is allowed in the action mask, {place}"):
        run.fit()
    assert run.progress.iteration == 150


@pytest.mark.slow
def test_nothing_hides_what_was_not_finite(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "nonfinite.json").mkdir()  # no report can be written there
    run, _ = trainer(faulty(), tmp_path)
    with pytest.raises(NonFiniteError, match="nan in reward, time step 7 of environment 0"):
        run.fit()
    (said,) = [r.getMessage() for r in caplog.records if "report" in r.getMessage()]
    assert said.startswith(f"there is no report: {tmp_path}/nonfinite.json cannot be written: ")


@pytest.mark.slow
def test_infinite_observation_does_not_poison_the_normaliser(tmp_path: Path) -> None:
    # Clipped to 10 it trains on, but the statistics that it enters would be NaN from then on.
    run, _ = trainer(faulty(where="obs", value="inf", normalize__observations=True, step=FAULT - 1))
    with pytest.raises(NonFiniteError, match="inf in observation, time step 7"):
        run.fit()
    assert run.progress.iteration == 4
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run.state.learner.policy.obs_stats))


@pytest.mark.slow
def test_exploding_parameters_are_named_by_layer() -> None:
    run, _ = trainer(faulty(chance=0.0, ppo__learning_rate=3e38, ppo__schedule="constant"))
    with pytest.raises(NonFiniteError, match="of iteration 1; first layer: ") as raised:
        run.fit()
    assert "epoch 1, minibatch 2" in str(raised.value)
    assert run.progress.iteration == 0


@pytest.mark.slow
def test_debug_names_the_operation() -> None:
    run = Trainer(resolve(faulty(where="obs", value="nan", step=3), 1), debug=True)
    with pytest.raises(NonFiniteError, match="operation: .*generated by primitive"):
        run.fit()


@pytest.mark.slow
def test_skip_drops_the_updates_and_counts_them() -> None:
    run, recorder = trainer(faulty("skip", normalize__rewards=True, normalize__observations=True))
    run.fit()
    rows = {iteration: row for iteration, row in recorder.rows if "ppo/updates" in row}
    assert {i: row["ppo/skipped"] for i, row in rows.items()} == {i: 4.0 * (i == 5) for i in range(1, 10)}
    assert rows[9]["ppo/updates"] == 7 * 4
    for part in (
        run.state.learner.policy.params,
        run.state.learner.policy.obs_stats,
        run.state.learner.reward_stats,
        run.state.learner.discounted_return,
    ):
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(part))
    # Where no update was made there is nothing to average.
    assert [i for i, row in rows.items() if not np.isfinite(row.get("loss/value", np.nan))] == [1, 5]


@pytest.mark.slow
def test_skip_recovers_from_a_poisoned_memory() -> None:
    # A NaN observation makes the recurrent carry NaN for as long as the episode lasts, if nothing is done.
    run, recorder = trainer(faulty("skip", where="obs", step=36, length=1000))
    run.fit()
    rows = {iteration: row for iteration, row in recorder.rows if "ppo/updates" in row}
    assert [i for i, row in rows.items() if row["ppo/skipped"]] == [5]


@pytest.mark.slow
def test_skip_gives_up_when_nothing_is_learnt_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxrl.training.nonfinite.MAX_IDLE_ITERATIONS", 3)
    run, _ = trainer(faulty("skip", step=1, length=1, iterations=50))
    with pytest.raises(NonFiniteError, match="nan in reward, time step 0"):
        run.fit()
    assert run.progress.iteration <= 3 + 2 * 2  # what was in flight, of at most doubling dispatches


@pytest.mark.slow
def test_rollback_goes_on_from_the_checkpoint_with_other_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run, recorder = trainer(faulty("rollback", chance=0.08, iterations=7), tmp_path)
        summary = run.fit()
    assert summary["stop_reason"] == "steps"
    warnings = [r.getMessage() for r in caplog.records if "not finite" in r.getMessage()]
    assert warnings
    assert "iteration 5 was not finite: back to step 256" in warnings[0]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run.state.learner.policy.params))
    assert recorder.rows[-1][0] == 7


@pytest.mark.slow
def test_rollback_gives_up_on_what_fails_each_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, _ = trainer(faulty("rollback"), tmp_path)
    with caplog.at_level(logging.WARNING), pytest.raises(NonFiniteError, match="nan in reward"):
        run.fit()
    assert sum("back to step 256" in r.getMessage() for r in caplog.records) == MAX_ROLLBACKS


@pytest.mark.slow
def test_a_reason_to_stop_holds_after_a_rollback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Time is up after iteration 5, which is not finite: iteration 4 is the last, and 5 is not tried again.
    reached: list[int] = []

    def stop_reason(self: Schedule, progress: Progress) -> str | None:
        reached.append(progress.iteration)
        return "wall_seconds" if max(reached) >= 5 else None

    monkeypatch.setattr(Schedule, "stop_reason", stop_reason)
    run, _ = trainer(faulty("rollback"), tmp_path)
    summary = run.fit()
    assert (summary["stop_reason"], summary["steps"]) == ("wall_seconds", 4 * STEPS)


@pytest.mark.slow
def test_nan_only_in_an_evaluation_halts(tmp_path: Path) -> None:
    # Whole episodes reach the fault, while training has only begun its first ones.
    run, _ = trainer(faulty(evaluate__every_steps=2 * STEPS), tmp_path)
    message = "^nan in eval/returns, in 2 of 2 episodes of the evaluation after iteration 2$"
    with pytest.raises(NonFiniteError, match=message):
        run.fit()
    assert run.progress.evaluation is None
    assert run.folder is not None
    run.folder.checkpoints.wait()
    assert run.folder.checkpoints.latest_step() == 2 * STEPS
    report = json.loads((tmp_path / "nonfinite.json").read_text())
    assert (report["iteration"], report["quantity"], report["value"]) == (2, "eval/returns", "nan")


@pytest.mark.slow
def test_nan_only_in_an_evaluation_is_skipped_or_rolled_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = faulty("skip", iterations=3, evaluate__every_steps=2 * STEPS)
    board = TensorBoardWriter(tmp_path / "tensorboard")
    recorder = Recorder()
    seen: list[float] = []
    callbacks = Callbacks(on_evaluation=lambda _, result: seen.append(result.mean))
    with caplog.at_level(logging.WARNING):
        summary = Trainer(
            resolve(config, 1), writer=MultiWriter([recorder, board]), callbacks=callbacks
        ).fit()
    board.close()
    # Population based training replaces such a member.
    assert np.isnan(seen).tolist() == [True, True]
    assert (summary["stop_reason"], summary["eval_return"], summary["best_step"]) == ("steps", None, None)
    assert [i for i, row in recorder.rows if "eval/return" in row] == [2, 3]
    assert "step 128: nan in eval/returns, in 2 of 2 episodes" in caplog.text

    caplog.clear()
    config = faulty("rollback", evaluate__every_steps=2 * STEPS, checkpoint__every_steps=STEPS)
    run, _ = trainer(config, tmp_path)
    with caplog.at_level(logging.WARNING), pytest.raises(NonFiniteError, match="nan in eval/returns"):
        run.fit()
    backs = ["after iteration 2: back to step 64" in r.getMessage() for r in caplog.records]
    assert sum(backs) == MAX_ROLLBACKS


@pytest.mark.slow
def test_diagnosis_leaves_the_state_alone() -> None:
    config = resolve(faulty(chance=0.0), 1)
    runtime = DeviceRuntime(config, Topology.of(1))
    state = runtime.learning.initial_state()
    before = jax.tree.map(np.array, state.learner.policy.params)
    nonfinite.diagnose(runtime, state)
    jax.tree.map(np.testing.assert_array_equal, before, state.learner.policy.params)
