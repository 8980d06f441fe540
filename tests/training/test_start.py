"""Where a run starts from: its own checkpoint, another run's, a saved state, or anew beside old rows."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxrl
from jaxrl.config import ConfigError, resolve
from jaxrl.metrics.clock import Clock
from jaxrl.reporting.writers import CsvWriter, JsonlWriter, MultiWriter
from jaxrl.runs.checkpoint import CheckpointError
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.nonfinite import Recovery
from jaxrl.training.trainer import Trainer
from tests.algorithms.tiny import assert_equal
from tests.training.test_trainer import STEPS, Recorder, tiny_config

SETTINGS = {"network.core": "gru", "ppo.schedule": "constant", "checkpoint.every_steps": 2 * STEPS}


def trainer(folder: Path | None = None, iterations: int = 4, **changes: Any) -> Trainer:
    where = None
    if folder is not None:
        where = RunFolder(str(folder), keep=3)
        where.create()
    config = resolve(tiny_config(iterations, **{**SETTINGS, **changes}), 1)
    return Trainer(config, where, MultiWriter([Recorder()]))


def finished(run: Trainer) -> Trainer:
    run.fit()
    if run.folder is not None:
        run.folder.write_config(run.config)
        run.folder.checkpoints.close()
    return run


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A run of 4 iterations, with checkpoints after 2 and 4."""
    return finished(trainer(tmp_path_factory.mktemp("straight") / "run"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a run that has not begun."""
    folder = tmp_path_factory.mktemp("saved")
    trainer().save(folder / "run")
    return folder / "run"


def path_of(run: Trainer) -> Path:
    assert run.folder is not None
    return Path(run.folder.path)


@pytest.mark.slow
def test_whole_state_goes_on_in_a_new_folder(straight: Trainer, tmp_path: Path) -> None:
    source = path_of(straight)
    before = files(source)
    branch = trainer(tmp_path / "branch", resume_from=str(source / "checkpoints" / str(2 * STEPS)))
    branch.start()
    assert branch.progress.iteration == 2
    assert branch.progress.seconds > 0
    finished(branch)
    # Bit for bit what the source became, environments, keys and optimiser included.
    assert_equal(branch.state, straight.state)
    assert files(source) == before
    assert branch.folder is not None
    assert branch.folder.checkpoints.all_steps() == (4 * STEPS,)

    # The new folder goes on by itself from here: the source may be gone.
    again = trainer(tmp_path / "branch", iterations=5, resume_from=str(tmp_path / "gone"))
    assert finished(again).progress.iteration == 5


@pytest.mark.slow
def test_rates_count_the_steps_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The checkpoint holds half of a log interval, whose steps took no time here.
    changes = {"log.every_steps": 4 * STEPS}
    source = finished(trainer(tmp_path / "source", **changes))
    timed: list[int] = []

    def rate(clock: Clock, phase: str, steps: int) -> float:
        timed.append(steps)
        return 1.0

    monkeypatch.setattr(Clock, "rate", rate)
    middle = str(path_of(source) / "checkpoints" / str(2 * STEPS))
    finished(trainer(tmp_path / "branch", resume_from=middle, **changes))
    assert timed == [2 * STEPS]


@pytest.mark.slow
def test_resuming_from_a_run_takes_its_newest(straight: Trainer, tmp_path: Path) -> None:
    branch = trainer(tmp_path, iterations=5, resume_from=str(path_of(straight)))
    branch.start()
    assert branch.progress.iteration == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"seed": 6}, ConfigError, r"holds a run with `seed` \(=5 there, 6 now\)"),
        ({"network.core_size": 5}, ConfigError, r"holds a run with `network.core_size` \(=4 there, 5 now\)"),
        ({"resume_from": "."}, CheckpointError, "holds (no checkpoint|runs)"),
    ],
)
def test_another_run_is_refused(
    saved: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"`resume_from` .*{message}"):
        trainer(**{"resume_from": str(saved), **changes}).start()


@pytest.mark.slow
def test_rollback_without_an_own_checkpoint_returns_to_the_source(straight: Trainer) -> None:
    source = path_of(straight) / "checkpoints" / str(2 * STEPS)
    config = resolve(tiny_config(4, resume_from=str(source), nonfinite="rollback", **SETTINGS), 1)
    runtime = Assembly.build(config).runtime
    checkpoints = RunCheckpoints(None, runtime.learning)
    state, progress = Recovery(runtime, checkpoints, debug=False).roll_back("a test")
    assert progress.iteration == int(state.iteration) == 2


@pytest.mark.slow
def test_saved_state_and_metadata_come_back(tmp_path: Path) -> None:
    first = trainer(notes="with the new reward")
    for _ in range(2):
        first.update(first.rollout())
    first.save(tmp_path / "saved", metadata={"fold": 3, "tags": ["a", "b"]})
    first.update(first.rollout())
    first.save(tmp_path / "saved", metadata={"fold": 4})

    second = trainer()
    assert second.load(tmp_path / "saved") == {"notes": "with the new reward", "fold": 4}
    assert second.steps == 3 * STEPS
    assert_equal(second.state, first.state)
    earlier = tmp_path / "saved" / "checkpoints" / str(2 * STEPS)
    assert second.load(earlier)["tags"] == ["a", "b"]
    # The third iteration again, from what was stored after the second.
    second.update(second.rollout())
    assert_equal(second.state, first.state)


@pytest.mark.slow
def test_what_cannot_be_saved_or_loaded_is_named(tmp_path: Path) -> None:
    run = trainer()
    run.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="holds a checkpoint of step 0 already: choose another folder"):
        run.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="`metadata` must be plain JSON values"):
        run.save(tmp_path / "other", metadata={"key": object()})
    with pytest.raises(ConfigError, match=r"holds a run with `seed`"):
        trainer(seed=6).load(tmp_path / "saved")
    with pytest.raises(CheckpointError, match="holds runs, such as .*saved: name one of them"):
        run.load(tmp_path)


@pytest.mark.slow
def test_hyperparameters_change_between_iterations(tmp_path: Path) -> None:
    run = trainer()
    run.update(run.rollout())  # gathers statistics of observations only
    assert run.update(run.rollout())["ppo/learning_rate"] == np.float32(1e-2)
    run.set(learning_rate=2e-3, entropy_coef=0)
    assert run.update(run.rollout())["ppo/learning_rate"] == np.float32(2e-3)
    # They are part of the state.
    run.save(tmp_path / "saved")
    other = trainer()
    other.load(tmp_path / "saved")
    assert other.state.learner.hyperparams.learning_rate == np.float32(2e-3)
    assert other.state.learner.hyperparams.entropy_coef == 0
    for values, message in (
        ({"learning_rat": 1.0}, "did you mean `learning_rate`"),
        ({"gamma": 1.5}, r"`ppo.gamma` \(=1.5\) must lie between 0 and 1"),
        ({"target_kl": 0.1}, "`ppo.target_kl` can be switched on or off only in the configuration"),
    ):
        with pytest.raises(ConfigError, match=message):
            run.set(**values)


def test_rows_of_a_run_without_a_checkpoint_are_kept_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = {"metrics.jsonl": '{"step": 64, "time": 1.0, "loss": 2.0}\n', "metrics.csv": "step,time\n64,1.0\n"}
    for attempt in (1, 2):
        # What a kill before the first checkpoint leaves.
        for name, text in rows.items():
            (tmp_path / name).write_text(text)
        where = RunFolder(str(tmp_path))
        where.create()
        config = resolve(tiny_config(1), 1)
        where.write_config(config)
        writer = MultiWriter([JsonlWriter(tmp_path / "metrics.jsonl"), CsvWriter(tmp_path / "metrics.csv")])
        run = Trainer(config, where, writer)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            run.start()
        names = [f"metrics.earlier-{attempt}{ending}" for ending in (".jsonl", ".csv")]
        assert "ended before its first checkpoint, so this one starts from step 0" in caplog.text
        assert f"its rows are now in {' and '.join(names)}" in caplog.text
        assert [(tmp_path / name).read_text() for name in names] == list(rows.values())
        run.log({"loss": 3.0})
        writer.close()
        (row,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
        assert (row["step"], row["loss"]) == (0, 3.0)


def test_fresh_run_says_nothing_of_earlier_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path).start()
    assert not caplog.records


@pytest.mark.slow
def test_callbacks_see_each_iteration_evaluation_and_checkpoint(straight: Trainer, tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    def on_iteration(run: Trainer, metrics: Any) -> None:
        seen.append(("iteration", run.progress.iteration, metrics["ppo/updates"]))
        assert int(run.state.iteration) == run.progress.iteration
        # The first iteration gathers statistics of observations only.
        assert run.progress.iteration == 1 or metrics["loss/value"] > 0

    recorder, where = Recorder(), RunFolder(str(tmp_path))
    where.create()
    config = resolve(tiny_config(4, **SETTINGS, **{"log.every_steps": 3 * STEPS}), 1)
    callbacks = jaxrl.Callbacks(
        on_start=lambda run: seen.append(("start", run.steps)),
        on_row=lambda run, row: seen.append(("row", row["steps"])),
        on_end=lambda run, summary: seen.append(("end", summary["steps"])),
        on_iteration=on_iteration,
        on_evaluation=lambda run, result: seen.append(("evaluation", run.steps, result.episodes)),
        on_checkpoint=lambda run, step: seen.append(("checkpoint", run.steps, step)),
    )
    run = Trainer(config, where, MultiWriter([recorder]), callbacks=callbacks)
    run.fit()
    assert seen == [
        ("start", 0),
        ("iteration", 1, 0),
        ("iteration", 2, 2),
        ("checkpoint", 2 * STEPS, 2 * STEPS),
        ("row", 3 * STEPS),
        ("iteration", 3, 4),
        ("iteration", 4, 6),
        ("evaluation", 4 * STEPS, 2),
        ("checkpoint", 4 * STEPS, 4 * STEPS),
        ("end", 4 * STEPS),
    ]
    # One iteration at a time gives the same numbers, and rows are averages over the same iterations.
    assert_equal(run.state, straight.state)
    assert recorder.steps_with("loss/policy") == [3, 4]
    (row,) = [row for step, row in recorder.rows if step == 3 * STEPS]
    assert row["ppo/updates"] == 4


@pytest.mark.slow
def test_callback_may_change_hyperparameters() -> None:
    rates = []

    def halve(run: Trainer, metrics: Any) -> None:
        rates.append(metrics["ppo/learning_rate"])
        run.set(learning_rate=rates[-1] / 2)

    config = resolve(tiny_config(3, **{"ppo.schedule": "constant", "normalize.observations": False}), 1)
    callbacks = jaxrl.Callbacks(on_iteration=halve)
    Trainer(config, writer=MultiWriter([Recorder()]), callbacks=callbacks).fit()
    np.testing.assert_allclose(rates, [1e-2, 5e-3, 2.5e-3], rtol=1e-6)
