"""Weights of several tasks' losses that follow a curriculum: against numpy, and resumed bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxrl.config import ConfigError
from jaxrl.envs.mixture import TASK
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from jaxrl.types import Trajectory
from tests.training.staged_runs import seen_from_each_stage, staged_config

CARTPOLE, ACROBOT = "CartPole-v1", "Acrobot-v1"
T, B = 8, 8
STEPS = T * B
# Of the first stage alone nothing of the task without weight is left in Adam's moments.
WEIGHTS = ({CARTPOLE: 0}, {CARTPOLE: 3, ACROBOT: 1}, {})
STAGES = (
    {"weights": WEIGHTS[0], "most_steps": 2 * STEPS},
    {"weights": WEIGHTS[1], "most_steps": STEPS},
    {"weights": WEIGHTS[2]},
)
ITERATIONS = 4


def weighted_config(*stages: Any, **fields: Any) -> ConfigDict:
    given = [{"least_steps": 0, **stage} for stage in stages or STAGES]
    sections = {
        "env": {"tasks": (f"gymnax:{CARTPOLE}", f"gymnax:{ACROBOT}"), "task_shares": (3, 1), "num_envs": B},
        "network": {"separate_value": False},
        "normalize": {"observations": False, "rewards": False},
        "evaluate": {"episodes": 4},
        "ppo": {"rollout_length": T, "num_minibatches": 1, "clip_value": False},
    }
    return staged_config(given, ITERATIONS * STEPS, sections, **fields)


def weighted_value_loss(trajectory: Trajectory, weights: dict[str, float]) -> float:
    """Half the mean square of what generalised advantages add to the values, by the tasks' weights."""
    gamma, gae_lambda = 0.99, 0.95
    reward, value, last = (
        np.asarray(x, float) for x in (trajectory.reward, trajectory.extras["value"], trajectory.last)
    )
    task = np.asarray(trajectory.obs[TASK])
    total = count = 0.0
    for b in range(B):
        weight = weights.get((CARTPOLE, ACROBOT)[task[0, b]], 1.0)
        advantage, after = 0.0, last[b]
        for t in reversed(range(T)):
            ends = bool(trajectory.terminated[t, b])
            assert not trajectory.truncated[t, b]
            delta = reward[t, b] + gamma * after * (not ends) - value[t, b]
            advantage = delta + gamma * gae_lambda * (not ends) * advantage
            after = value[t, b]
            total, count = total + weight * 0.5 * advantage**2, count + weight
    return total / count


@pytest.mark.slow
def test_weights_follow_the_curriculum_and_resume_bit_for_bit(tmp_path: Path) -> None:
    config = weighted_config(**{"ppo.gamma": 0.99, "ppo.gae_lambda": 0.95, "env.stagger": False})
    trainer = Trainer(config, writer=MultiWriter(()))

    def update(stage: int) -> dict[str, float]:
        trajectory = jax.device_get(trainer.rollout())
        before = np.asarray(_kernel(trainer))
        row = trainer.update(trajectory)
        np.testing.assert_allclose(
            row["loss/value"], weighted_value_loss(trajectory, WEIGHTS[stage]), rtol=2e-5
        )
        # What comes in from the one-hot of a task whose loss counts for nothing does not change.
        moved = (np.asarray(_kernel(trainer)) != before).any(1)
        assert moved.tolist() == [WEIGHTS[stage].get(name) != 0 for name in (CARTPOLE, ACROBOT)]
        return {name: x for name, x in row.items() if name.startswith(("loss/value", "curriculum/"))}

    seen = seen_from_each_stage(trainer, tmp_path, ITERATIONS, 3, update)
    assert [row["curriculum/stage"] for row in seen] == [1, 2, 3, 3]
    # Three of four environments have the first task; over all of them the mean is 1.
    shown = [[row[f"curriculum/weight/{name}"] for name in (CARTPOLE, ACROBOT)] for row in seen]
    np.testing.assert_allclose(shown, [[0, 4], [1.2, 0.4], [1, 1], [1, 1]])
    trainer.close()


def _kernel(trainer: Trainer) -> Any:
    return trainer.state.learner.policy.params["MLP_1"]["Dense_0"]["kernel"]  # of the one-hot


@pytest.mark.parametrize(
    ("stage", "fields", "message"),
    [
        ({"weights": {"CartPol-v1": 1}}, {}, r"stage 1: `weights` \(='CartPol-v1'\) is none of `env.tasks`"),
        ({"weights": {CARTPOLE: -1}}, {}, rf"stage 1: `weights.{CARTPOLE}` \(=-1\) must lie between 0 and"),
        ({"weights": {CARTPOLE: 0, ACROBOT: 0}}, {}, "stage 1: `weights` must not all be 0"),
        ({"weights": [1, 2]}, {}, r"stage 1: `weights` \(=\[1, 2\]\) must hold numbers by name of a task"),
        ({"task": {"level": 1}}, {}, "stage 1: `task` must be left out with `env.tasks`"),
        (
            {"weights": {CARTPOLE: 2}},
            {"env.tasks": (), "env.task_shares": (), "env.name": "jaxrl:Maze"},
            "`weights` are of `env.tasks`, and jaxrl:Maze is one task",
        ),
        (
            {"weights": {CARTPOLE: 2}},
            {"algorithm": "dqn"},
            r"`curriculum.weights` is not offered by `algorithm` \(='dqn'\)",
        ),
    ],
)
def test_bad_weights_are_one_line(stage: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Trainer(weighted_config(stage, **fields), writer=MultiWriter(()))
    assert "\n" not in str(caught.value)
