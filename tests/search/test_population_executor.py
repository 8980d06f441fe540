"""Trials trained as one program: each is a run, and one that fails is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError, check_config
from jaxrl.config.files import load_config
from jaxrl.evaluation.run_names import numeric_hyperparameters
from jaxrl.search import SearchOptions, optimize
from jaxrl.search.optimization import _are_alike
from jaxrl.search.population import require_exchangeable
from jaxrl.search.space import Space
from tests.programs.test_make_train import tiny_config

ROOT = Path(__file__).parents[2]
OPTIONS: dict[str, Any] = {"method": "grid", "score": "mean", "verify": 0}


def config(**overrides: Any) -> Any:
    often = {"stop.steps": 256, "evaluate.every_steps": 128, "evaluate.episodes": 4}
    return tiny_config(**often, **overrides)


@pytest.mark.long
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
        ({}, {"population.seeds": 2}, "a trial is a single run"),
    ],
)
def test_what_cannot_be_one_program_is_refused(
    tmp_path: Path, options: dict[str, Any], overrides: dict[str, Any], text: str
) -> None:
    space = {"ppo.learning_rate": {"choice": [1e-3]}}
    with pytest.raises(ConfigError, match=text):
        optimize(config(**overrides), space, workdir=str(tmp_path), **options)


@pytest.mark.parametrize(
    ("options", "alike", "size"),
    [
        ({}, True, 20),
        ({"method": "grid", "trials": 100}, True, 32),
        ({}, False, 1),
        ({"jobs": 1}, True, 1),
        ({"population": 1}, True, 1),
        ({"population": 4}, False, 4),
        # These learn from the scores or the seconds of earlier trials.
        ({"method": "optuna"}, True, 1),
        ({"method": "pareto"}, True, 1),
    ],
)
def test_independent_trials_that_differ_in_numbers_are_one_program(
    options: dict[str, Any], alike: bool, size: int
) -> None:
    assert SearchOptions(**options).program_size(alike) == size


def test_numeric_hyperparameters_are_those_of_one_program() -> None:
    names = numeric_hyperparameters(check_config(config()))
    assert {"ppo.learning_rate", "ppo.gamma", "ppo.clip_range"} <= set(names)
    assert not {"ppo.num_epochs", "ppo.rollout_length", "ppo.target_kl"} & set(names)  # The last is None.


def pbt(folder: Path, steps: int = 4000) -> subprocess.Popen[str]:
    space = folder.with_suffix(".yaml")
    space.write_text("ppo.learning_rate: {log: [1e-5, 1e-2]}\nppo.gamma: {uniform: [0.9, 0.99]}\n")
    small = "env.num_envs=4 ppo.rollout_length=8 ppo.num_minibatches=2 network.hidden_sizes=(4,)".split()
    settings = [f"--config.{each}" for each in (*small, "evaluate.episodes=4", f"stop.steps={steps}")]
    command = ["-m", "jaxrl", "search", "ppo_mlp", f"--space={space}", "--method=pbt", "--trials=4"]
    return subprocess.Popen(
        [sys.executable, *command, "--verify=0", f"--workdir={folder}", *settings],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def scores(folder: Path) -> list[Any]:
    lines = map(json.loads, (folder / "trials.jsonl").read_text().splitlines())
    return sorted((line["number"], line["score"]) for line in lines if line["state"] == "done")


@pytest.mark.parametrize(
    ("space", "options", "text"),
    [
        # A process is started for the names of the numbers.
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ({"ppo.num_epochs": {"int": [1, 4]}}, {}, "`ppo.num_epochs` .* no numeric hyperparameter"),
                ({"ppo.gamma": {"choice": [0.9, 0.99]}}, {}, "`ppo.gamma` .* must be log or uniform"),
            )
        ),
        ({"ppo.gamma": {"uniform": [0.9, 0.99]}}, {"trials": 1}, "`trials` .* at least 2"),
        ({"ppo.gamma": {"uniform": [0.9, 0.99]}}, {"jobs": 2}, "`jobs` .* must be 1 for the method pbt"),
        ({"ppo.gamma": {"uniform": [0.9, 0.99]}}, {"metric": "env/success_rate"}, "must be 'eval/return'"),
    ],
)
def test_what_pbt_cannot_search_is_one_line(
    tmp_path: Path, space: dict[str, Any], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        optimize(config(), space, workdir=str(tmp_path), method="pbt", **options)


def test_pbt_varies_no_integers() -> None:
    # Multiplied by 0.8 or 1.2 they are none, and no configuration takes the winner's.
    name = "dqn.target_period"
    with pytest.raises(ConfigError, match=f"`{name}` .* and the field no integer"):
        require_exchangeable(Space.parse({name: {"log": [10, 100]}}, "dqn"), (name,))


@pytest.mark.parametrize(
    ("field", "value"), [("stop.seconds", 60.0), ("stop.wall_seconds", 60.0), ("stages", ({"steps": 1000},))]
)
def test_trials_that_a_program_would_change_are_none(field: str, value: Any) -> None:
    # Twenty of one program would have a twentieth of the seconds each, and the winner's fresh seeds a third.
    trained, space = load_config("ppo_mlp"), Space.parse({"ppo.gamma": {"uniform": [0.9, 0.99]}})
    assert _are_alike(trained, ("ppo.gamma",), space)
    trained.update_from_flattened_dict({field: value})
    assert not _are_alike(trained, ("ppo.gamma",), space)


@pytest.mark.parametrize("options", [{"population": 4}, {"method": "pbt"}])
def test_a_population_of_trials_needs_a_budget_in_steps(options: dict[str, Any], tmp_path: Path) -> None:
    trained = load_config("ppo_mlp")
    trained.stop.seconds = 60.0
    space = {"ppo.gamma": {"uniform": [0.9, 0.99]}}
    with pytest.raises(ConfigError, match="`stop.seconds` .=60. must be None with `--population`"):
        optimize(trained, space, workdir=str(tmp_path), **options)
