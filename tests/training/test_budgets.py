"""Budgets in seconds: what they count, what is left for the end, and checkpoints by time (correctness 30)."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import optimizer
from jaxrl.config import ConfigError, resolve
from jaxrl.config.errors import RunError
from jaxrl.config.overrides import override
from jaxrl.metrics.clock import Clock
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.coordination import Coordinator
from jaxrl.training.trainer import Trainer
from tests.training.test_trainer import STEPS, Recorder, tiny_config

LONG = 10_000_000  # iterations


def run(folder: Path | None = None, started: float | None = None, **changes: Any) -> tuple[Any, Recorder]:
    recorder, where = Recorder(), None
    if folder is not None:
        where = RunFolder(str(folder), keep=100)
        where.create()
    config = resolve(tiny_config(LONG, **{"log.every_steps": STEPS * 100, **changes}), 1)
    assembly = Assembly.build(config, process_started=started)
    return Trainer(config, where, MultiWriter([recorder]), assembly), recorder


@pytest.mark.parametrize(
    ("iterations", "asked", "between"),
    [(1000, 900, 900), (1000, 0, 25), (100, 0, 2), (79, 0, 1), (3, 0, 1), (LONG, 0, 50_000 // STEPS)],
)
def test_a_run_has_twenty_rows_or_those_that_are_asked_for(iterations: int, asked: int, between: int) -> None:
    config = resolve(tiny_config(iterations, **{"log.every_steps": STEPS * asked}), 1)
    assert config.log_iterations == between
    assert asked or config.num_iterations // config.log_iterations >= min(20, iterations)


def test_rows_are_late_after_a_share_of_the_least_budget_of_time() -> None:
    both = {"stop.seconds": 400.0, "stop.wall_seconds": 800.0}
    assert resolve(tiny_config(1, **both, **{"log.every_steps": 0}), 1).log_seconds == 10.0
    assert resolve(tiny_config(1, **both, **{"log.every_steps": 5}), 1).log_seconds == math.inf
    assert resolve(tiny_config(1, **{"log.every_steps": 0}), 1).log_seconds == math.inf


@pytest.mark.slow
def test_seconds_buy_training_not_compilation() -> None:
    trainer, _ = run(**{"stop.seconds": 0.05})
    summary = trainer.fit()
    assert summary["stop_reason"] == "seconds"
    assert summary["compile_seconds"] > 0.05  # as the clock once counted, this left nothing
    # The first dispatch is the warm-up.
    assert summary["steps"] > STEPS
    assert summary["eval_return"] > 0


@pytest.mark.slow
def test_a_budget_in_seconds_gives_a_curve() -> None:
    trainer, recorder = run(**{"stop.seconds": 1.0, "log.every_steps": 0})
    trainer.fit()
    assert len(recorder.steps_with("time/seconds")) > 10  # 20 and more on a quiet machine


@pytest.mark.slow
def test_seconds_go_on_after_a_resume(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, **{"stop.seconds": 0.05})
    steps = trainer.fit()["steps"]
    again, _ = run(tmp_path, **{"stop.seconds": 0.05})
    summary = again.fit()
    assert (summary["stop_reason"], summary["steps"]) == ("seconds", steps)


@pytest.mark.slow
def test_wall_seconds_leave_time_for_the_end(tmp_path: Path) -> None:
    # Another run shows how long this machine takes to compile, one step and the end.
    begun = time.perf_counter()
    run(tmp_path / "before", **{"stop.seconds": 0.05})[0].fit()
    left = 2 * (time.perf_counter() - begun) + 5.0
    limit, started = 12.0 + left, time.perf_counter() - 12.0
    trainer, _ = run(
        tmp_path / "run", started, **{"stop.wall_seconds": limit, "evaluate.every_steps": STEPS * 1000}
    )
    summary = trainer.fit()
    assert summary["stop_reason"] == "wall_seconds"
    assert time.perf_counter() - started < limit
    assert trainer.folder.checkpoints.latest_step() == summary["steps"] > 0
    assert not trainer.interrupted


def test_no_step_in_time_is_a_failure_that_says_why(tmp_path: Path) -> None:
    trainer, _ = run(tmp_path, time.perf_counter() - 5.0, **{"stop.wall_seconds": 6.0})
    message = r"^no step was made: of `stop.wall_seconds` \(=6\), \d+\.\d s had passed"
    with pytest.raises(RunError, match=message):
        trainer.fit()
    assert trainer.folder.checkpoints.latest_step() is None


@pytest.mark.slow
def test_checkpoints_come_by_time_as_well(tmp_path: Path) -> None:
    # Steps alone would save only the final state.
    trainer, recorder = run(tmp_path, **{"stop.seconds": 1.0, "checkpoint.every_seconds": 0.2})
    trainer.fit()
    saved = [step for step, row in recorder.rows if "checkpoint/step" in row]
    assert len(saved) >= 3
    assert set(saved) == set(trainer.folder.checkpoints.all_steps())


@pytest.mark.slow
def test_training_by_time_may_plan_any_number_of_steps() -> None:
    # 1e12 steps are more updates than an int32 counts; a schedule over them hardly begins.
    trainer, recorder = run(**{"stop.steps": 10**12, "stop.seconds": 0.05, "ppo.schedule": "linear"})
    summary = trainer.fit()
    assert (summary["stop_reason"], summary["steps"] > STEPS) == ("seconds", True)
    rates = [row["ppo/learning_rate"] for _, row in recorder.rows if "ppo/learning_rate" in row]
    np.testing.assert_allclose(rates, 1e-2, rtol=1e-4)


@pytest.mark.parametrize("total", [100, 2**24 + 1])
def test_schedule_of_a_float_total_is_that_of_an_integer(total: int) -> None:
    updates = jnp.asarray([0, 1, 33, 99], jnp.int32)
    planned = jnp.int32(total).astype(jnp.float32)
    for made in updates:
        rate = jnp.float32(1e-3) * optimizer.schedule_factor("linear", made, jnp.float32(total))
        expected = jnp.float32(1e-3) * (1.0 - jnp.clip(made.astype(jnp.float32) / planned, 0.0, 1.0))
        assert rate == expected


def test_clock_counts_training_after_the_warm_up_and_what_the_end_takes() -> None:
    now = [0.0]
    clock = Clock(lambda: now[0], process_started=-3.0)

    def spend(phase: str, seconds: float) -> None:
        with clock.measure(phase):
            now[0] += seconds

    spend("compile", 10.0)
    spend("train", 2.0)
    assert (clock.trained_seconds(), clock.wall_seconds()) == (0.0, 15.0)
    clock.end_warm_up()
    spend("train", 1.0)
    spend("evaluate", 5.0)
    spend("save", 2.0)
    clock.end_warm_up()
    spend("train", 0.5)
    assert clock.trained_seconds() == 1.5
    clock.carry_over(100.0, trained=40.0)
    assert (clock.trained_seconds(), clock.wall_seconds()) == (41.5, 23.5)
    # Two dispatches as long as the longest, an evaluation, and a save of which training saw only a part.
    assert clock.closing_seconds() == 2 * 2.0 + 5.0 + 4 * 2.0
    assert Coordinator(clock).status.closing_seconds == 17.0


def test_whole_runs_and_warm_starts_exclude_each_other(tmp_path: Path) -> None:
    config = tiny_config(1, init_from="a", resume_from="b")
    with pytest.raises(ConfigError, match="`resume_from` .* continues a whole run, so `init_from`"):
        resolve(config, 1)


def test_a_run_may_end_by_time_alone() -> None:
    config = tiny_config(LONG, **{"ppo.schedule": "linear", "log.every_steps": STEPS * 100})
    override(config, "stop.steps", "none")
    with pytest.raises(ConfigError, match="`stop.steps` .=None. must be a number, or `stop.seconds`"):
        resolve(config, 1)
    config.stop.seconds = 0.2
    assert resolve(config, 1).follows_clock
    config.stop.update(seconds=None, wall_seconds=60.0)
    assert not resolve(config, 1).follows_clock


@pytest.mark.slow
def test_schedules_follow_the_seconds_that_are_the_budget() -> None:
    budget, peak = 0.3, 1e-2
    fields = {"stop.steps": None, "stop.seconds": budget, "ppo.schedule": "linear"}
    trainer, recorder = run(**{"log.every_steps": STEPS * 10, "normalize.observations": False, **fields})
    assert trainer.fit()["stop_reason"] == "seconds"
    rows = [row for _, row in recorder.rows if "ppo/learning_rate" in row]
    rates = [row["ppo/learning_rate"] for row in rows]
    assert len(rates) >= 2
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]
    earlier = 0.0
    for rate, row in zip(rates, rows, strict=True):
        # Dispatched between the row before and this one; one may have been in flight.
        now = row["time/budget_seconds"]
        assert peak * (1 - min(now / budget, 1)) - 1e-9 <= rate <= peak
        assert rate <= peak * (1 - max(0.0, earlier - 0.1 * budget) / budget) + 1e-9
        earlier = now
    # They are not stored: a resumed run knows its seconds.
    assert float(trainer.state.learner.elapsed) > 0.3


@pytest.mark.slow
def test_schedules_of_a_custom_loop_follow_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of each update is what is left of the budget when its rollout began."""
    budget, peak = 10.0, 1e-2
    fields = {"stop.steps": None, "stop.seconds": budget, "ppo.schedule": "linear"}
    config = tiny_config(LONG, **{"normalize.observations": False, "ppo.num_minibatches": 1, **fields})
    trainer = Trainer(resolve(config, 1), writer=MultiWriter(()))
    assert trainer.update(trainer.rollout())["ppo/learning_rate"] == pytest.approx(peak)
    assert 0 <= trainer._assembly.clock.trained_seconds() < budget
    for seconds, rate in ((4.0, 0.6 * peak), (20.0, 0.0)):
        monkeypatch.setattr(trainer._assembly.clock, "trained_seconds", lambda now=seconds: now)
        assert trainer.update(trainer.rollout())["ppo/learning_rate"] == pytest.approx(rate)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("warmup", "expected"),
    [
        # From 5/6 of the first peak on: exact, and then it falls by the same share of what is left.
        (0, [1e-2, 2e-3, 2e-3 * 4 / 5]),
        # The second and the third of four updates, which lead to the rate that was set and not beyond it.
        (4, [1e-2 / 4, 2e-3 * 2 / 4, 2e-3 * 3 / 4]),
    ],
)
def test_the_rate_that_is_set_is_that_of_the_next_update(warmup: int, expected: list[float]) -> None:
    fields = {"ppo.num_minibatches": 1, "ppo.schedule": "linear"}
    fields["ppo.warmup_updates"] = warmup
    config = resolve(tiny_config(6, **{"normalize.observations": False, **fields}), 1)
    trainer = Trainer(config, writer=MultiWriter(()))
    seen = []
    for rate in (None, 2e-3, None):
        if rate:
            trainer.set(learning_rate=rate)
        seen.append(trainer.update(trainer.rollout())["ppo/learning_rate"])
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
