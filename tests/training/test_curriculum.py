"""Runs with a curriculum: resumed in every stage, on two devices, and as members of a population."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests import processes
from tests.training.staged_runs import seen_from_each_stage, staged_config

ITERATIONS, STEPS = 10, 8 * 8  # of one iteration
# An odd level of the corridor succeeds, an even one fails, whatever the policy does.
STAGES = (
    {"task": {"level": [0, 1]}, "success": 0.4, "window": 12, "least_steps": 2 * STEPS},
    {"task": {"level": 2}, "success": 0.9, "window": 10, "most_steps": 3 * STEPS, "earlier": 0.4},
    {"task": {"level": [1, 3]}, "success": 0.3, "window": 10, "back": 0.9},
    {"task": {"level": 3}, "window": 7, "earlier": 0.3},
)


def corridor_config(**fields: Any) -> ConfigDict:
    stages = [{"least_steps": STEPS, **stage} for stage in STAGES]
    env = {"name": "tests.experience.task_environments:Corridor", "num_envs": 8, "stagger": False}
    sections = {"env": env, "ppo": {"rollout_length": 8, "num_minibatches": 2}}
    return staged_config(stages, ITERATIONS * STEPS, sections, **fields)


@pytest.mark.slow
def test_a_run_resumes_in_every_stage_bit_for_bit(tmp_path: Path) -> None:
    trainer = Trainer(corridor_config(), writer=MultiWriter(()))

    def update(stage: int) -> float:
        return trainer.update(trainer.rollout())["curriculum/stage"]

    assert set(seen_from_each_stage(trainer, tmp_path, ITERATIONS, 4, update)) == {1, 2, 3, 4}
    trainer.close()


_TWO_DEVICES = """
import jax, numpy as np
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.training.test_curriculum import ITERATIONS, corridor_config
found = []
for devices in (1, 2):
    trainer = Trainer(corridor_config(num_devices=devices), writer=MultiWriter(()))
    for _ in range(ITERATIONS):
        metrics = trainer.update(trainer.rollout())
    told = {name: x for name, x in metrics.items() if name.startswith("curriculum/")}
    found.append((jax.device_get((trainer.state.tasks, trainer.state.collector.task)), told))
jax.tree.map(np.testing.assert_array_equal, *found)
assert found[0][1]["curriculum/stage"] == 4, found[0][1]
"""


# tests/experience/curriculum/ has its sums over devices, tests/parallel/multi_device/ devices.
@pytest.mark.long
def test_two_devices_have_the_curriculum_of_one() -> None:
    processes.succeed("-c", _TWO_DEVICES, devices=2)
