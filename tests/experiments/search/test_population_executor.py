"""Trials trained as one program: each is a run, and one that fails is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError
from jaxrl.experiments.search import optimize
from tests.training.test_functional import tiny_config

OPTIONS: dict[str, Any] = {"method": "grid", "score": "mean", "verify": 0}


def config(**overrides: Any) -> Any:
    often = {"stop.steps": 256, "evaluate.every_steps": 128, "evaluate.episodes": 4}
    return tiny_config(**often, **overrides)


@pytest.mark.slow
def test_trials_together_score_as_trials_alone(tmp_path: Path) -> None:
    # The second diverges; the third has another shape, and so a program of its own.
    space = {"ppo.learning_rate": {"choice": [1e-2, 1e38]}, "ppo.num_epochs": {"choice": [1, 2]}}
    together = optimize(config(), space, workdir=str(tmp_path / "together"), population=4, **OPTIONS)
    alone = optimize(config(), space, workdir=str(tmp_path / "alone"), jobs=2, **OPTIONS)
    assert [(t.values, t.state, t.score) for t in together.trials] == [
        (t.values, t.state, t.score) for t in alone.trials
    ]
    assert sorted(trial.state for trial in together.trials) == ["done", "done", "failed", "failed"]
    assert all("nan or inf" in trial.reason for trial in together.trials if trial.state == "failed")
    for trial in together.trials:
        run = tmp_path / "together/trials" / f"{trial.number:04d}"
        assert (run / "summary.json").exists() == (trial.state == "done")
        assert (
            json.loads((run / "config.json").read_text())["ppo"]["num_epochs"]
            == trial.values["ppo.num_epochs"]
        )
    assert not list((tmp_path / "together/trials").glob("*.json"))


@pytest.mark.parametrize(
    ("options", "overrides", "text"),
    [
        ({"population": 4, "jobs": 2}, {}, "`jobs` \\(=2\\) must be 1"),
        ({"population": 2, "method": "optuna"}, {}, "`pruner` \\(='median'\\) must be 'none'"),
        ({"population": 0}, {}, "`population` \\(=0\\) must be at least 1"),
        ({"population": 2}, {"env.name": "gymnasium:CartPole-v1"}, "runs on the host"),
    ],
)
def test_what_cannot_be_one_program_is_refused(
    tmp_path: Path, options: dict[str, Any], overrides: dict[str, Any], text: str
) -> None:
    space = {"ppo.learning_rate": {"choice": [1e-3]}}
    with pytest.raises(ConfigError, match=text):
        optimize(config(**overrides), space, workdir=str(tmp_path), **options)
