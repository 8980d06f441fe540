"""Soft actor-critic on Pendulum: continuous actions, one update for each environment step.

Command:  jaxrl train sac
Others:   jaxrl train sac_navigation, for Navigation with goals; sac_memory, with a recurrent core
Hardware: 2 CPU cores
Minutes:  not measured
Expected: greedy return -165 to -124 after 16,000 steps (5 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "sac"
    c.env.name = "gymnax:Pendulum-v1"
    c.env.num_envs = 4
    c.network.update(core="none", hidden_sizes=(256, 256), activation="relu")
    c.sac.update(rollout_length=4, updates_per_rollout=16, capacity=100_000, learning_starts=1_000)
    c.evaluate.every_steps = 4_000
    c.stop.steps = 40_000
    return c
