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
from jaxrl.population.run_population import run_population
from jaxrl.runs.signals import Interruption
from jaxrl.training.run import run
from jaxrl.training.trainer import Trainer
from tests.evaluation.suites.environments import Corridor

MODES = ("eval/greedy/", "eval/sampled/")
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


# On the device: above; rules on the host: tests/experience/test_statistics.py.
@pytest.mark.long
def test_levels_on_the_host_have_rules_on_their_info(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    telling = "gymnasium:tests.envs.host_environments:Telling"
    categories = {"said": [telling], "never": [{"env": telling, "success": "info.goal", "cost": "nothing"}]}
    config = config_of(tmp_path, success="info.success", cost="time", categories=categories)
    config.env.update(name=telling)
    config.evaluate.unseen = ""
    config.host.num_groups = 1
    assert run(config, str(tmp_path / "run"), Interruption()).exit_code == 0
    row = evaluations(tmp_path / "run")[-1]
    # An episode tells 1, 3, ... of its steps, and at its end of a success where it terminated.
    assert 0 <= row["eval/said/success_rate"] <= 1
    assert row["eval/said/cost"] == pytest.approx(row["eval/env/time"], rel=1)
    assert row["eval/said/cost"] > 0
    assert "eval/never/steps" in row
    assert not {"eval/never/success_rate", "eval/never/cost", "eval/all/success_rate"} & row.keys()
    assert row["eval/success_rate"] <= 1


# As counted: tests/experience/test_statistics.py.
@pytest.mark.long
def test_success_as_stable_baselines3_has_it(tmp_path: Path) -> None:
    module = "gymnasium:tests.envs.host_environments"
    kinds = {"solved": "Solving", "lost": "Solving(solved=False)", "silent": "Count"}
    categories = {category: [f"{module}:{name}"] for category, name in kinds.items()}
    config = config_of(tmp_path, success="", cost="", categories=categories)
    config.env.name = f"{module}:Solving"
    config.evaluate.unseen = f"{module}:Count"
    config.host.num_groups = 1
    assert run(config, str(tmp_path / "run"), Interruption()).exit_code == 0
    rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    found = {key: x for row in rows for key, x in row.items() if key.endswith("success_rate")}
    found = {key: x for key, x in found.items() if not key.startswith(MODES)}
    solved = ("env/success_rate", "eval/success_rate", "eval/solved/success_rate")
    assert found == {**dict.fromkeys(solved, 1), "eval/lost/success_rate": 0}


# A single run plays it above.
@pytest.mark.long
def test_members_of_a_population_play_the_suite(tmp_path: Path) -> None:
    rooms = "tests.evaluation.suites.environments:Rooms"
    large = {"env": rooms, "tasks": "size=large", "success": "", "cost": ""}  # of three and four steps
    config = config_of(tmp_path, categories={"short way": SUITE["categories"]["short way"], "large": [large]})
    config.population.seeds = 2
    outcome = run_population(config, str(tmp_path / "run"), Interruption())
    assert outcome.exit_code == 0
    for member in ("seed_0", "seed_1"):
        row = evaluations(tmp_path / "run" / "members" / member)[-1]
        assert row["eval/short_way/steps"] == 5
        assert row["eval/large/steps"] == pytest.approx((3 + 4 + 3) / 3)


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
