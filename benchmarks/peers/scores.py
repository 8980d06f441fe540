"""The scores of `time_to_score.py`: tasks, trainers, and where each has its settings for a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import shipped

EPISODES = 64  # of an evaluation, everywhere
Settings = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class ScoreTask:
    """A mean return to reach.

    Attributes:
      name: as given to `--tasks`.
      env: the environment, by the name that gymnax and, without games, Gymnasium have for it.
      score: mean return of `EPISODES` greedy episodes.
      evaluate_every: environment steps between evaluations.
      arguments: of the environment, where its default is an easier task.
    """

    name: str
    env: str
    score: float
    evaluate_every: int
    arguments: str = ""

    @property
    def ours(self) -> str:
        """Its name in a configuration of jaxrl."""
        return f"gymnax:{self.env}{self.arguments}"


TASKS = {
    task.name: task
    for task in (
        ScoreTask("cartpole", "CartPole-v1", 475.0, 5_000),
        ScoreTask("acrobot", "Acrobot-v1", -85.0, 10_000),
        ScoreTask("mountaincar", "MountainCar-v0", -115.0, 10_000),
        ScoreTask("pendulum", "Pendulum-v1", -150.0, 10_000),
        ScoreTask("breakout", "Breakout-MinAtar", 20.0, 250_000),
        ScoreTask("asterix", "Asterix-MinAtar", 10.0, 250_000),
        ScoreTask("memorychain", "MemoryChain-bsuite", 0.9, 50_000, "(memory_length=40)"),
    )
}


@dataclasses.dataclass(frozen=True)
class ScoreTrainer:
    """One trainer with one algorithm.

    Attributes:
      name: as given to `--trainers`.
      runner: the script that runs it, in this folder; "" for our own command.
      needs: what `--NAME=PATH` must name, a checkout; "" if it needs none.
      python: the option that names its Python, `--NAME-python`; "" for the Python of this process.
      algorithm: of its settings.
      ships: where its settings are from, by task; a task that is missing is one it ships nothing for.
    """

    name: str
    runner: str
    needs: str
    python: str
    algorithm: str
    ships: Mapping[str, str]


def _rejax(algorithm: str, *tasks: str) -> ScoreTrainer:
    paths = {task: f"configs/gymnax/{task}.yaml" for task in tasks}
    if algorithm == "ppo":
        paths["breakout"] = "benchmark/breakout_1m.yaml"
    return ScoreTrainer(f"rejax-{algorithm}", "rejax_score.py", "rejax", "rejax", algorithm, paths)


_KNOWN = "`jaxrl train --env=NAME`"
_NOTEBOOK = "examples/brax_minatar.ipynb, another game"
TRAINERS = {
    trainer.name: trainer
    for trainer in (
        ScoreTrainer("jaxrl", "", "", "", "", dict.fromkeys(TASKS, _KNOWN)),
        _rejax("ppo", "cartpole", "acrobot", "pendulum"),
        _rejax("dqn", "cartpole", "acrobot", "mountaincar"),
        _rejax("sac", "pendulum"),
        ScoreTrainer(
            "purejaxrl",
            "purejaxrl_score.py",
            "purejaxrl",
            "purejaxrl",
            "ppo",
            {"cartpole": "ppo.py", "breakout": _NOTEBOOK, "asterix": _NOTEBOOK},
        ),
        ScoreTrainer(
            "sbx-ppo",
            "sbx_score.py",
            "",
            "sbx",
            "PPO",
            dict.fromkeys(("cartpole", "acrobot", "mountaincar"), "rl-zoo, hyperparams/ppo.yml"),
        ),
        ScoreTrainer(
            "sbx-sac", "sbx_score.py", "", "sbx", "SAC", {"pendulum": "rl-zoo, hyperparams/sac.yml"}
        ),
    )
}
# Why scripts that could be expected here are not; shown below every table.
LEFT_OUT = {
    "cleanrl": "its dqn_jax.py and c51_jax.py never evaluate before their end and are written for jax 0.4.8 "
    "and Gymnasium 0.28; its JAX scripts for PPO, DDPG and TD3 are for Atari and MuJoCo",
}


def settings(trainer: ScoreTrainer, task: ScoreTask, checkout: Path | None) -> Settings:
    """The numbers that `trainer` ships for `task`, as its runner takes them.

    Raises:
      OSError, KeyError: a checkout does not have them.
    """
    if trainer.needs == "rejax":
        import yaml

        assert checkout is not None
        sections = yaml.safe_load((checkout / trainer.ships[task.name]).read_text())
        return {key: value for key, value in sections[trainer.algorithm].items() if key != "env"}
    if trainer.needs == "purejaxrl":
        ships = shipped.PUREJAXRL if task.name == "cartpole" else shipped.PUREJAXRL_MINATAR
        return ships | {"ENV_NAME": task.env}
    return shipped.ZOO[task.name] if trainer.python == "sbx" else {}
