"""Trains on host environments on 1 and on 8 virtual devices; see `measure.py`.

`python tests/parallel/multi_device/measure_host.py FOLDER` leaves one `NAME.npz` per tree of arrays.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxrl.config import resolve
from jaxrl.training.trainer import Trainer
from tests.parallel.multi_device.measure import tiny_config

ITERATIONS = 3


def main(folder: Path) -> None:
    for devices in (1, 8):
        config = tiny_config(ITERATIONS)
        config.env.name = "envpool:CartPole-v1"
        config.env.stagger = False  # so that rollouts are fused from the second on
        config.host.overlap = False
        trainer = Trainer(resolve(config, devices))
        for iteration in range(ITERATIONS):
            trajectory = trainer.rollout()
            assert len(trajectory.obs.sharding.device_set) == devices
            if iteration == 0:
                save(folder / f"trajectory_{devices}.npz", trajectory)
            trainer.update(trajectory)
        trainer.close()
        state = trainer.state
        save(
            folder / f"state_{devices}.npz",
            (state.learner.policy.params, state.learner.policy.obs_stats, state.learner.reward_stats),
        )
    # Everything in flight at once: the collectives of the learner beside the actor's programs.
    config.host.overlap = True
    config.stop.steps *= 5
    summary = Trainer(resolve(config, 8)).fit()
    assert summary["steps"] == 5 * ITERATIONS * 32 * 16, summary


def save(path: Path, tree: Any) -> None:
    flat = jax.tree_util.tree_leaves_with_path(tree)
    np.savez(path, **{jax.tree_util.keystr(key): np.asarray(x) for key, x in flat})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
