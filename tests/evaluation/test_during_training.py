"""A suite that is played during training: its metrics, and what is refused before training starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import yaml
from ml_collections import ConfigDict

import jaxrl
from jaxrl.commands.evaluate import main as evaluate
from jaxrl.config import ConfigError, resolve
from jaxrl.envs.base import InfoMetric
from jaxrl.evaluation.suites.definition import metric_name
from jaxrl.runs.signals import Interruption
from jaxrl.training.run import run
from jaxrl.training.trainer import Trainer
from tests.evaluation.suites.environments import Corridor

MODULE = "tests.evaluation.test_during_training"
ENV = "tests.evaluation.suites.environments:Corridor"
SUITE: dict[str, Any] = {
    "episodes": 3,
    "success": "info.goal",
    "cost": "cost",
    "categories": {
        "short way": [f"{ENV}(length=5)"],
        "mixed": [f"{ENV}(length=10, hazards=4)", {"env": f"{ENV}(length=20, reached=False)", "episodes": 1}],
    },
}


class Telling(Corridor):
    """`Corridor` that reports its goal as `success`, and its cost."""

    def __init__(self, length: int = 4, reached: bool = True) -> None:
        super().__init__(length, 2, reached)
        self.spec = self.spec.__class__(
            "Telling",
            self.spec.observation_space,
            self.spec.action_space,
            max_episode_steps=20,
            reports=(InfoMetric("success"), InfoMetric("cost", "mean")),
        )

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[Any, jaxrl.TimeStep]:
        state, timestep = super().step(key, state, action)
        info = {"success": jnp.where(timestep.done, timestep.info["goal"].astype(jnp.float32), jnp.nan)}
        return state, timestep.replace(info=timestep.info | info)  # type: ignore[attr-defined]


def config_of(folder: Path, **fields: Any) -> ConfigDict:
    file = folder / "ways.yaml"
    file.write_text(yaml.safe_dump(SUITE | fields))
    config = jaxrl.default_config()
    config.env.update(name=f"{MODULE}:Telling", num_envs=4)
    config.network.update(core="none", hidden_sizes=(4,))
    config.ppo.update(rollout_length=8, num_minibatches=1, num_epochs=1)
    config.evaluate.update(
        every_steps=32, episodes=2, suite=str(file), unseen=f"{MODULE}:Telling(reached=False)"
    )
    config.stop.steps = 64
    config.log.layers = False
    return config


def evaluations(folder: Path) -> list[dict[str, float]]:
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if "eval/return" in row]


@pytest.mark.slow
def test_a_suite_is_played_at_every_evaluation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config, folder = config_of(tmp_path), tmp_path / "run"
    assert run(config, str(folder), Interruption()).exit_code == 0
    rows = evaluations(folder)
    assert [row["steps"] if "steps" in row else row["step"] for row in rows] == [32, 64]
    for row in rows:
        short, mixed, everything = (
            {
                key.removeprefix(f"eval/{name}/"): x
                for key, x in row.items()
                if key.startswith(f"eval/{name}/")
            }
            for name in ("short_way", "mixed", "all")
        )
        assert short == {
            "success_rate": 1, "efficiency": 4, "safety": 1, "cost": 0, "steps": 5, "return": 5
        }  # fmt: skip
        assert mixed["success_rate"] == 3 / 4
        assert mixed["safety"] == 1 / 4
        assert mixed["steps"] == (3 * 10 + 20) / 4
        assert everything["success_rate"] == 6 / 7
        # What the environment declares, of the plain evaluations.
        assert (row["eval/success_rate"], row["eval/unseen_success_rate"]) == (1, 0)
        assert row["eval/env/cost"] == row["eval/unseen_env/cost"] == 1 / 2
        assert row["eval/return"] == 4
    # Without a suite the command prints what the environment reports, and writes it.
    assert evaluate(["jaxrl evaluate", f"--workdir={folder}", "--episodes=2", "--trust"]) == 0
    output = capfd.readouterr().out
    assert "success     100.0% of the episodes\n" in output
    assert "env/cost    0.5\n" in output
    written = json.loads((folder / "evaluations" / "step-64-greedy-2-seed-0.json").read_text())
    assert (written["success_rate"], written["env/cost"]) == (1, 0.5)
    # The command plays the same episodes with the same code.
    arguments = [f"--workdir={folder}", f"--suite={tmp_path}/ways.yaml", "--trust"]
    assert evaluate(["jaxrl evaluate", *arguments]) == 0, capfd.readouterr().err
    report = json.loads((folder / "evaluations" / "suite-ways-step-64.json").read_text())
    mixed = report["modes"]["greedy"]["categories"]["mixed"]
    assert mixed["success_rate"] == rows[-1]["eval/mixed/success_rate"]
    assert mixed["length"] == rows[-1]["eval/mixed/steps"]


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        ({"a": ["gymnax:CartPole-v1"]}, "has observations of float32[4], the policy has float32[2]"),
        ({"a": ["gymnax:CartPol-v1"]}, "did you mean gymnax:CartPole-v1"),
        ({"a": [f"{MODULE}:Corridor"], "all": [ENV]}, "'all' needs another name for its metrics"),
        ({"a b": [ENV], "a_b": [ENV]}, "'a b' needs another name for its metrics eval/a_b/..."),
        ({"a": [{"env": ENV, "cost": "oil"}]}, "cannot report 'oil'"),
    ],
)
def test_a_suite_that_cannot_be_played_is_refused_before_training(
    tmp_path: Path, categories: dict[str, Any], said: str
) -> None:
    config = config_of(tmp_path, categories=categories)
    with pytest.raises(ConfigError) as caught:
        Trainer(resolve(config, 1))
    message = str(caught.value)
    assert message.startswith("`evaluate.suite` (='")
    assert said in message
    assert "\n" not in message


def test_names_of_metrics() -> None:
    assert [metric_name(x) for x in ("full room", "mine_heavy", "a/b", "?")] == [
        "full_room",
        "mine_heavy",
        "a_b",
        "_",
    ]
