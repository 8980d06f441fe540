"""A run without environments: it learns from demonstrations, and its clock counts updates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import ConfigError, changed_fields, check_config, default_config, resolve
from jaxrl.diagnostics import hardware_profile, throughput
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.signals import Interruption
from jaxrl.training.nonfinite import NonFiniteError
from jaxrl.training.run import run
from jaxrl.training.trainer import Trainer
from tests.compiled_trainers import compile_once

UPDATES = 60


def cloning(**fields: Any) -> ConfigDict:
    name = "tests.algorithms.cloning:Cloning"
    config = default_config(name)
    config.algorithm, config.num_devices = name, 1
    config.env.update(name="jaxrl:ProbePolicy", num_envs=8)
    config.network.update(core="none", hidden_sizes=(8,))
    config.normalize.observations = False
    config.stop.steps = UPDATES
    config.log.update(every_steps=20, layers=False)
    config.evaluate.update(every_steps=30, episodes=32)
    config.checkpoint.every_steps = 30
    for field, value in fields.items():
        section, _, key = field.rpartition("__")
        target = config[section] if section else config
        target[key] = value
    return config


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def learnt(folder: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss/policy"]) for row in rows(folder) if "loss/policy" in row]


@pytest.mark.slow
@pytest.mark.parametrize(("inverted", "expected"), [(False, 1.0), (True, -1.0)])
def test_learns_from_demonstrations_whatever_the_rewards(inverted: bool, expected: float) -> None:
    # The environment pays 1 for what the rule does and -1 for the opposite.
    trainer = Trainer(cloning(cloning__inverted=inverted), writer=MultiWriter([]))
    assert trainer.fit()["eval_return"] == expected
    assert trainer.state.memory is None
    assert trainer.state.collector is None
    assert trainer.steps == UPDATES


@pytest.mark.slow
def test_rows_checkpoints_and_display_count_updates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert run(cloning(), str(folder), Interruption()).exit_code == 0
    assert [step for step, _ in learnt(folder)] == [20, 40, 60]
    assert not any(name.startswith(("episode/", "env/")) for row in rows(folder) for name in row)
    assert [row["step"] for row in rows(folder) if "eval/return" in row] == [30, 60]
    assert {path.name for path in (folder / "checkpoints").iterdir()} >= {"30", "60"}
    assert json.loads((folder / "config.json").read_text())["derived"]["clock"] == "updates"
    shown = capsys.readouterr().out
    assert "    updates " in shown
    assert "done: all updates made, greedy return 1.000, sampled 1.000, 60 updates in" in shown
    assert "environments" not in shown


# A clone of `jaxrl pretrain`, which is such a run: tests/training/test_cloning.py.
@pytest.mark.long
def test_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once(monkeypatch)
    straight, halves = tmp_path / "straight", tmp_path / "halves"
    assert run(cloning(log__every_steps=15), str(straight), Interruption()).exit_code == 0
    for updates in (UPDATES // 2, UPDATES):
        config = cloning(stop__steps=updates, log__every_steps=15)
        assert run(config, str(halves), Interruption()).exit_code == 0
    assert learnt(straight) == learnt(halves)


@pytest.mark.slow
def test_environments_on_the_host_are_evaluated_on(tmp_path: Path) -> None:
    # Groups of environments that step need not divide those of the data.
    name = "gymnasium:tests.envs.host_environments:Signs"
    trainer = Trainer(cloning(env__name=name, env__num_envs=9), writer=MultiWriter([]))
    assert trainer.fit()["eval_return"] == 8


@pytest.mark.slow
def test_by_hand_and_as_a_function() -> None:
    trainer = Trainer(cloning(), writer=MultiWriter([]))
    with pytest.raises(RuntimeError, match=r"steps no environments: call update\(\) alone"):
        trainer.rollout()
    trainer.start()
    first = trainer.update()["loss/policy"]
    assert trainer.update()["loss/policy"] < first
    assert trainer.steps == 2
    _, metrics = jax.jit(jaxrl.make_train(cloning()))(jax.random.key(0))
    assert metrics["loss/policy"].shape == (UPDATES,)


@pytest.mark.slow
def test_the_loss_that_is_not_finite_is_named() -> None:
    trainer = Trainer(cloning(cloning__learning_rate=1e38), writer=MultiWriter([]))
    with pytest.raises(NonFiniteError, match="loss/policy|parameters|layer output"):
        trainer.fit()


@pytest.mark.slow
def test_benchmark_counts_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_MATMUL_SIZE", 256)  # what else is measured takes a tenth of the time
    monkeypatch.setattr(throughput, "_PAIRS", 1)
    found = throughput.measure(cloning(), 1, 0.2)
    assert found["seconds_per_iteration"]["rollout"] == 0
    assert found["config"]["derived"]["clock"] == "updates"


def test_there_are_no_environments_to_fit_into_memory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="steps no environments"):
        hardware_profile.fit(cloning(), str(tmp_path), print)


def test_one_update_after_the_other_is_the_clock() -> None:
    config = resolve(cloning(), 1)
    assert (config.clock, config.steps_per_iteration, config.num_iterations) == ("updates", 1, UPDATES)


@pytest.mark.parametrize("name", ["num_epochs", "num_minibatches"])
def test_a_resumed_clone_makes_as_many_updates_in_each_iteration(name: str) -> None:
    """Otherwise its steps, which are updates, would not be the sum of those that were made."""
    before, after = (default_config("behavior_cloning") for _ in range(2))
    before.algorithm = after.algorithm = "behavior_cloning"
    there = before.behavior_cloning[name]
    after.behavior_cloning[name] = 2 * there
    (changed,) = changed_fields(check_config(before), check_config(after))
    assert changed == f"`behavior_cloning.{name}` (={there} there, {2 * there} now)"
