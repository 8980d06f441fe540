"""A policy of several tasks: evaluations, suites and films of each of them, by their short names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jaxrl.commands.evaluate import main
from jaxrl.config import EnvConfig, task_environment
from jaxrl.envs import filming, registry
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.experience.test_mixture import mixed_config
from tests.inference.runs import save_run

# Not the three of `jaxrl:Mixture` itself.
TASKS = ("gymnax:MountainCar-v0", "gymnax:CartPole-v1")
CAR, POLE = "MountainCar-v0", "CartPole-v1"
MIXTURE = f"jaxrl:Mixture(tasks={TASKS!r})"
SUITE = {
    "episodes": 3,
    "modes": ["greedy"],
    "categories": {"car": [CAR], "pole": [{"env": POLE, "steps": 100}]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    fields = {"core": "none", "hidden_sizes": (4,), "encoder": "joint"}
    save_run(folder, env__name=MIXTURE, **{f"network__{name}": x for name, x in fields.items()})
    return folder


def suite_in(folder: Path) -> str:
    file = folder / "each.yaml"
    file.write_text(yaml.safe_dump(SUITE))
    return str(file)


def evaluate(run: Path, *arguments: str) -> int:
    return main(["jaxrl evaluate", f"--workdir={run}", *arguments])


def test_the_environment_of_a_task() -> None:
    env = EnvConfig(name=MIXTURE)
    alone = task_environment(POLE, env, (CAR, POLE))
    assert registry.spec_of(alone).max_episode_steps == 500
    assert registry.spec_of(task_environment(CAR, env, (CAR, POLE))).max_episode_steps == 200
    assert task_environment("gymnax:CartPole-v1", env, (CAR, POLE)) == "gymnax:CartPole-v1"
    assert task_environment(POLE, env, ()) == POLE


@pytest.mark.slow
def test_an_evaluation_of_all_tasks_and_of_one(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert evaluate(run, "--episodes=4", "--greedy") == 0, capfd.readouterr().err
    said = capfd.readouterr().out
    assert f"task/{CAR}/length 200" in said
    assert f"task/{POLE}/return" in said
    assert evaluate(run, "--episodes=4", "--greedy", f"--environment={CAR}") == 0, capfd.readouterr().err
    said = capfd.readouterr().out
    assert "return      -200.00" in said
    assert f"task/{CAR}/return -200" in said
    assert f"task/{POLE}" not in said


@pytest.mark.slow
def test_a_film_of_one_task(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "film.gif"
    code = evaluate(run, "--episodes=0", "--greedy", f"--environment={POLE}", f"--video={file}")
    said = capfd.readouterr()
    assert code == 0, said.err
    assert int(said.out.partition("video of ")[2].partition(" ")[0]) < 200  # a car would use them up
    assert file.stat().st_size > 0


@pytest.mark.slow
def test_a_film_shows_the_task_that_is_named() -> None:
    """Whatever the seed: without a name the task of a film is drawn."""
    env = EnvConfig(name=MIXTURE)

    def tasks(name: str) -> set[int]:
        return {int(next(filming.film(name, (), seed)).obs["task"]) for seed in range(6)}

    assert tasks(task_environment(POLE, env, (CAR, POLE))) == {1}
    assert tasks(MIXTURE) == {0, 1}


@pytest.mark.slow
def test_a_run_plays_a_suite_of_its_tasks(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"env.tasks": TASKS, "env.task_shares": (), "evaluate.suite": suite_in(tmp_path)}
    trainer = Trainer(mixed_config(**fields), writer=MultiWriter(()))
    row = trainer._assembly.evaluators(trainer.state.learner.policy, 0, {}).row
    assert row["eval/car/return"] == row["eval/task/MountainCar-v0/return"] == -200
    assert row["eval/pole/return"] == row["eval/pole/steps"] > 0


@pytest.mark.slow
def test_a_task_that_is_not_there_is_one_line(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert evaluate(run, "--environment=Acrobot-v1") == 2
    assert "another observation_space than `env.name`" in capfd.readouterr().err
