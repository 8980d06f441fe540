"""CartPole learns the same curve on the host as on the device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import jaxrl
from jaxrl.reporting.writers import MultiWriter, Writer
from jaxrl.training.trainer import Trainer

SEEDS = range(3)
ROWS = 10


class Returns(Writer):
    def __init__(self) -> None:
        self.values: list[float] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if "episode/return" in scalars:
            self.values.append(scalars["episode/return"])


def curve(name: str, seed: int) -> list[float]:
    """Mean return of the episodes that ended in each tenth of 51,200 steps."""
    config = jaxrl.default_config()
    config.seed, config.num_devices = seed, 1
    config.env.update(name=name, num_envs=16)
    config.network.update(core="mingru", hidden_sizes=(16,), core_size=16)
    config.ppo.update(rollout_length=32, num_epochs=4, num_minibatches=4, learning_rate=4e-3)
    config.stop.steps = 51_200
    config.log.every_steps = 51_200 // ROWS
    config.evaluate.update(every_steps=0, episodes=1)
    writer = Returns()
    Trainer(config, writer=MultiWriter([writer])).fit()
    return writer.values


# What either collects is the same step by step: tests/algorithms/test_extras.py, tests/experience/host/.
@pytest.mark.long
def test_same_curve_within_noise() -> None:
    names = ("envpool:CartPole-v1", "gymnax:CartPole-v1")
    host, device = (np.array([curve(name, seed) for seed in SEEDS]) for name in names)
    assert host.shape == device.shape == (len(SEEDS), ROWS)
    noise = np.sqrt((host.var(axis=0, ddof=1) + device.var(axis=0, ddof=1)) / len(SEEDS))
    distance = np.abs(host.mean(axis=0) - device.mean(axis=0))
    assert (distance < 4 * noise + 5).all(), (host.mean(axis=0), device.mean(axis=0), noise)
    # Returns rise from 28 to 270 and more.
    assert host.mean(axis=0)[-1] > 3 * host.mean(axis=0)[0]
