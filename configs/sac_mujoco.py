"""Soft actor-critic on MuJoCo's HalfCheetah with the hyperparameters of Haarnoja et al. 2018 (table 1).

Two layers of 256, batches of 256, every rate 3e-4, gamma 0.99, targets averaged at 0.005, a million stored
steps, an update per step, and a learnt temperature (arXiv:1812.05905). Eight environments instead of one
step at once, followed by eight updates.

Command:  jaxrl train sac_mujoco
Others:   --env=envpool:Hopper-v4, envpool:Walker2d-v4, gymnasium:HalfCheetah-v5 (needs gymnasium[mujoco])
Hardware: 2 CPU cores
Minutes:  38 on one core
Expected: greedy return 8,034 (1 seed)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "sac"
    c.env.name = "envpool:HalfCheetah-v4"
    c.env.num_envs = 8
    c.network.update(core="none", hidden_sizes=(256, 256), activation="relu")
    c.sac.update(rollout_length=1, updates_per_rollout=8, batch_size=256, capacity=1_000_000)
    c.sac.update(learning_starts=10_000, learning_rate=3e-4, critic_rate=3e-4)
    c.sac.temperature_rate = 3e-4
    c.stop.steps = 300_000
    c.evaluate.update(every_steps=50_000, episodes=10)
    c.checkpoint.every_steps = 100_000
    return c
