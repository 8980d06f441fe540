"""Runs whose episodes have trials: resumed bit for bit, on two devices, and what evaluations report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests import processes
from tests.algorithms.tiny import assert_equal, copied
from tests.training.test_trainer import Recorder

ITERATIONS = 6


def trials_config(**fields: Any) -> ConfigDict:
    """Episodes of six steps, which rollouts of four cut within trials and between them."""
    config = jaxrl.default_config()
    config.num_devices = 1
    config.env.update(name="tests.envs.test_trials:Arms", num_envs=8)
    config.env.wrappers = ("trials(count=3)", "previous_action")
    config.network.update(core="gru", hidden_sizes=(4,), core_size=4)
    config.ppo.update(rollout_length=4, num_epochs=1, num_minibatches=2)
    config.stop.steps = ITERATIONS * 32
    config.evaluate.update(every_steps=0, episodes=8)
    config.log.update(every_steps=1_000_000, layers=False)
    config.update_from_flattened_dict(fields)
    return config


@pytest.mark.slow
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    trainer = Trainer(trials_config(), writer=MultiWriter(()))
    for i in range(ITERATIONS):
        if i == 2:  # in the second trial of episodes that were not cut off
            trainer.save(tmp_path / "2")
        row = trainer.update(trainer.rollout())
    end = copied(trainer.state)
    names = [f"env/{what}_trial_{i}" for i in (1, 2, 3) for what in ("return", "success")]
    assert {*names} <= row.keys()
    trainer.load(tmp_path / "2")
    for _ in range(2, ITERATIONS):
        trainer.update(trainer.rollout())
    assert_equal(end, trainer.state)
    trainer.close()


@pytest.mark.slow
def test_evaluations_report_trials() -> None:
    recorder = Recorder()
    fields = {"evaluate.every_steps": 32 * ITERATIONS}
    Trainer(trials_config(**fields), writer=MultiWriter((recorder,))).fit()
    found = [row for _, row in recorder.rows if "eval/return" in row][-1]
    by_trial = [found[f"eval/env/return_trial_{i}"] for i in (1, 2, 3)]
    assert sum(by_trial) == pytest.approx(found["eval/return"])
    assert {f"eval/env/success_trial_{i}" for i in (1, 2, 3)} <= found.keys()


_TWO_DEVICES = """
import jax, numpy as np
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.training.test_trials import ITERATIONS, trials_config

found = []
for devices in (1, 2):
    trainer = Trainer(trials_config(num_devices=devices), writer=MultiWriter(()))
    rows = [trainer.update(trainer.rollout()) for _ in range(ITERATIONS)]
    env = jax.device_get(trainer.state.collector.env_state.env)
    found.append((env.trial, env.env["arm"], [row["env/return_trial_2"] for row in rows[2:]]))
    trainer.close()
for one, two in zip(*found, strict=True):
    np.testing.assert_allclose(one, two, rtol=1e-5)
print("equal", sorted(set(found[0][0].tolist())))
"""


# Without trials: tests/parallel/multi_device/test_devices.py.
@pytest.mark.long
def test_two_devices_play_the_trials_of_one() -> None:
    done = processes.run("-c", _TWO_DEVICES, devices=2)
    assert done.stdout.startswith("equal [0, 1"), done.stderr
