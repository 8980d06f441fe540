"""The policy of the best evaluation is kept, whatever the intervals of checkpoints (correctness 29)."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import resolve
from jaxrl.evaluation.result import Result
from jaxrl.metrics.reduction import Interval
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.training.progress import Progress
from jaxrl.training.trainer import Trainer
from tests.training.test_trainer import STEPS, Recorder, tiny_config


def train(folder: Path, iterations: int) -> tuple[dict[str, Any], dict[int, float], RunFolder]:
    """(summary, mean return by step of each evaluation, folder) of a run that evaluates each iteration."""
    run, recorder = RunFolder(str(folder), keep=1), Recorder()
    run.create()
    evaluations = {"evaluate.every_steps": STEPS, "evaluate.episodes": 4}
    config = tiny_config(iterations, **evaluations, **{"network.core": "gru", "ppo.schedule": "constant"})
    summary = Trainer(resolve(config, 1), run, MultiWriter([recorder])).fit()
    run.checkpoints.wait()
    return summary, {step: row["eval/return"] for step, row in recorder.rows if "eval/return" in row}, run


@pytest.mark.slow
def test_best_evaluation_has_a_checkpoint_between_the_intervals(tmp_path: Path) -> None:
    # No interval of checkpoints falls on the best evaluation: only the final state would be saved.
    summary, returns, run = train(tmp_path, 10)
    best = max(returns, key=lambda step: (returns[step], step))
    assert best < 10 * STEPS, "the curve must have its peak before its end"
    assert (summary["best_step"], summary["best_return"]) == (best, returns[best])
    assert summary["eval_return"] == returns[10 * STEPS]
    # With one recent checkpoint to keep, the best one is kept beside it.
    assert run.checkpoints.all_steps() == (best, 10 * STEPS)
    assert run.checkpoints.best_step() == best

    # A resumed run knows what it has to beat.
    summary, later, run = train(tmp_path, 40)
    returns |= later
    best = max(returns, key=lambda step: (returns[step], step))
    assert best > 10 * STEPS, "the curve must have a higher peak later"
    assert (summary["best_step"], run.checkpoints.best_step()) == (best, best)


def evaluated(progress: Progress, iteration: int, mean: float) -> Progress:
    result = Result(1, mean, 0.0, mean, mean, mean, mean, 1.0, 0.0, 0)
    return dataclasses.replace(progress, iteration=iteration, evaluation=result, evaluated_at=iteration)


def test_best_is_the_latest_of_equals_and_never_what_is_not_finite() -> None:
    progress = Progress(Interval.empty({}))
    assert not progress.is_best
    assert not evaluated(progress, 1, math.nan).is_best
    progress = evaluated(progress, 1, 5.0)
    assert progress.is_best
    progress = progress.after_save()
    assert (progress.best_return, progress.best_at, progress.is_best) == (5.0, 1, False)
    assert not dataclasses.replace(progress, iteration=2).is_best  # of another state
    assert not evaluated(progress, 2, math.nan).is_best
    assert evaluated(progress, 2, math.nan).after_save().best_at == 1
    # No reason to save, but where it is saved anyway it counts, as `--checkpoint=best` has it.
    assert not evaluated(progress, 3, 5.0).is_best
    assert evaluated(progress, 3, 5.0).after_save().best_at == 3
    assert evaluated(progress, 4, 4.0).after_save().best_at == 1


@pytest.mark.parametrize("best", [None, 2.5])
def test_best_survives_a_checkpoint(best: float | None) -> None:
    progress = Progress(Interval.empty({}), iteration=3, best_return=best, best_at=2)
    again = Progress.from_json(progress.to_json(), Interval.empty({}))
    assert (again.best_return, again.best_at) == (best, 2)
