"""Which checkpoint is taken where none is named: the same one everywhere, and it is said which."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

import jaxrl
from jaxrl.commands import COMMANDS, arguments_of
from jaxrl.config import ConfigError, to_json
from jaxrl.evaluation import trained_policy
from jaxrl.evaluation.recordings import record
from jaxrl.evaluation.suites import job
from jaxrl.evaluation.tournament.contestants import enter
from jaxrl.inference.deployment import deploy
from jaxrl.inference.export import export
from jaxrl.metrics.reduction import Interval
from jaxrl.pipeline.settings import STAGES
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.runs.checkpoint.checkpoint_record import COMPARABLE_AFTER
from jaxrl.runs.folder import RunFolder
from jaxrl.training.progress import Progress
from jaxrl.training.run_state import RunState
from tests.inference.runs import policy_of


def saved(folder: Path, scores: dict[int, float | None], after: dict[int, int] | None = None) -> str:
    """A run with a checkpoint for each step, and the score of its evaluation."""
    found = policy_of()
    checkpoints = Checkpointer(str(folder / "checkpoints"), keep=2)
    for step, score in scores.items():
        meta = {"config": to_json(found.config), COMPARABLE_AFTER: (after or {}).get(step, 0)}
        checkpoints.save(step, {"learner": {"policy": found.state}}, meta, score)
    checkpoints.close()
    RunFolder(str(folder)).write_config(found.config)
    return str(folder)


def test_the_best_by_evaluation_is_taken_and_of_a_run_without_any_the_latest(tmp_path: Path) -> None:
    judged = saved(tmp_path / "judged", {10: 1.0, 20: 9.0, 30: 2.0, 40: None})
    unjudged = saved(tmp_path / "unjudged", {10: None, 20: None})
    assert trained_policy.load(judged).checkpoint == "step 20, the best by evaluation"
    assert trained_policy.load(judged, "latest").checkpoint == "step 40, the latest"
    assert trained_policy.load(judged, "30").checkpoint == "step 30"
    assert trained_policy.load(unjudged).checkpoint == "step 20, the latest, none was evaluated"
    assert jaxrl.load(judged).step == 20
    with pytest.raises(ConfigError, match="must be best, latest or a step"):
        trained_policy.load(judged, "newest")


def test_every_command_and_function_has_the_same_default() -> None:
    functions = (trained_policy.load, jaxrl.load, export, record, job.run, enter, deploy)
    found = {f.__module__: inspect.signature(f).parameters["checkpoint"].default for f in functions}
    for orders in (kind.settings for kind in STAGES.values()):
        fields = {field.name: field.default for field in dataclasses.fields(orders)}
        if "checkpoint" in fields:
            found[orders.__name__] = fields["checkpoint"]
    for name in COMMANDS:
        for argument in arguments_of(name):
            if argument.name == "checkpoint":
                found[name] = argument.default
    assert {"evaluate", "record", "export", "deploy", "serve", "tournament"} <= found.keys()
    assert {name: x for name, x in found.items() if x != "best"} == {}


@pytest.mark.slow
def test_scores_in_another_environment_do_not_count(tmp_path: Path) -> None:
    # From step 20 on a stage trains in a harder environment, where no return is as high as before.
    after = {30: 20, 40: 20, 50: 20, 60: 20}
    run = saved(tmp_path / "run", {10: 9.0, 20: 8.0, 30: 2.0, 40: 1.0, 50: 0.0, 60: 1.0}, after)
    assert trained_policy.load(run).checkpoint == "step 30, the best by evaluation"
    # Two recent ones are kept, and the best of those that compare with them.
    assert Checkpointer(f"{run}/checkpoints", create=False).all_steps() == (30, 50, 60)
    begun = saved(tmp_path / "begun", {10: 9.0, 20: 8.0, 30: None}, after)
    assert trained_policy.load(begun).step == 30


def test_a_stage_with_another_environment_says_where_it_began() -> None:
    empty = Interval.empty({})
    for forgets, expected in ((True, 5), (False, 0)):
        run = RunState(1, SimpleNamespace(empty_interval=lambda: empty))  # type: ignore[arg-type]
        run.roll_back(None, Progress(empty, iteration=5))  # type: ignore[arg-type]
        run.begin_stage(None, 1.0, forgets)  # type: ignore[arg-type]
        assert run.progress.forgotten_at == expected
        assert Progress.from_json({**run.progress.to_json(), "interval": {}}, empty).forgotten_at == expected
