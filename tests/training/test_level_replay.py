"""Runs that choose their levels: resumed bit for bit, on two devices, in populations; what is learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import ConfigError
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests import processes
from tests.algorithms.tiny import assert_equal, copied

ITERATIONS, STEPS = 8, 8 * 8  # of one iteration
ENVIRONMENT = "tests.experience.task_environments:DrawnCorridor"


def level_config(method: str, **fields: Any) -> ConfigDict:
    config = jaxrl.default_config()
    config.num_devices = 1
    config.env.update(name=ENVIRONMENT, num_envs=8)
    config.network.update(core="none", hidden_sizes=(4,))
    config.ppo.update(rollout_length=8, num_epochs=1, num_minibatches=2)
    config.stop.steps = ITERATIONS * STEPS
    config.evaluate.update(every_steps=0, episodes=2)
    config.log.update(every_steps=1_000_000, layers=False)
    config.curriculum.name = method
    config.levels.update(capacity=6, fill=0.3, refresh_iterations=3, candidates=7, kept=2, episodes=2)
    config.update_from_flattened_dict(fields)
    return config


def advance(trainer: Trainer) -> list[dict[str, float]]:
    rows = []
    while trainer.progress.iteration < ITERATIONS:
        rows.append(trainer.update(trainer.rollout()))
    return rows


@pytest.mark.slow
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    trainer = Trainer(level_config("learnability"), writer=MultiWriter(()))
    for i in range(ITERATIONS):
        if i in (3, 4):  # before new levels are chosen, and between
            trainer.save(tmp_path / str(i))
        row = trainer.update(trainer.rollout())
    end = copied(trainer.state)
    assert row["levels/replayed"] > 0
    # Three choices, of 7 levels with two episodes of one to four steps each.
    assert 3 * 14 <= row["levels/refresh_steps"] <= 3 * 14 * 4
    assert int(trainer.state.tasks.refreshed) == 6
    for i in (3, 4):
        trainer.load(tmp_path / str(i))
        advance(trainer)
        assert_equal(end, trainer.state)
    trainer.close()


@pytest.mark.slow
def test_new_levels_teach_robust_replay_nothing() -> None:
    # Two hundred episodes end. There are four levels, far fewer than places: waiting for places to be filled,
    # instead of for as many episodes, nothing would ever be replayed or learnt.
    fields = {"levels.capacity": 200, "levels.fill": 0.5}
    trainer = Trainer(level_config("robust_plr", **fields), writer=MultiWriter(()))
    first = jax.tree.leaves(copied(trainer.state.learner.policy.params))
    replayed, moved = [], []
    for _ in range(ITERATIONS):
        replayed.append(trainer.update(trainer.rollout())["levels/replayed"] > 0)
        now = jax.tree.leaves(copied(trainer.state.learner.policy.params))
        assert all(np.isfinite(x).all() for x in now)
        moved.append(any((x != y).any() for x, y in zip(first, now, strict=True)))
    trainer.close()
    begins = replayed.index(True)
    assert begins > 1
    assert not any(moved[:begins])
    assert moved[-1]


def test_an_algorithm_without_the_signal_is_refused() -> None:
    config = jaxrl.default_config("dqn")
    config.network.core = "none"
    config.env.name = ENVIRONMENT
    config.curriculum.name = "plr"
    with pytest.raises(ConfigError, match="`algorithm` .='dqn'. does not offer the signal value"):
        Trainer(config, writer=MultiWriter(()))


_TWO_DEVICES = """
import jax, numpy as np
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.training.test_level_replay import level_config
found = []
for devices in (1, 2):
    trainer = Trainer(level_config("accel", num_devices=devices), writer=MultiWriter(()))
    for _ in range(5):
        metrics = trainer.update(trainer.rollout())
    told = {name: x for name, x in metrics.items() if name.startswith("levels/")}
    found.append((jax.device_get((trainer.state.tasks, trainer.state.collector.task)), told))
jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), *found)
assert found[0][1]["levels/replayed"] > 0
"""


# tests/experience/level_replay/ has the levels of devices, tests/parallel/multi_device/ training.
@pytest.mark.long
def test_two_devices_have_the_levels_of_one() -> None:
    processes.succeed("-c", _TWO_DEVICES, devices=2)
