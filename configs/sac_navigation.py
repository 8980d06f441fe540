"""SAC with hindsight on Navigation with sparse rewards and continuous actions.

Command:  jaxrl train sac_navigation
Others:   --config.sac.hindsight=none
Hardware: 2 CPU cores
Minutes:  not measured
Expected: not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "sac"
    c.env.name = "jaxrl:Navigation(goal_conditioned=True, reward='sparse')"
    c.env.num_envs = 32
    c.network.update(encoder="joint", core="none", hidden_sizes=(256, 256), activation="relu")
    c.normalize.observations = False
    c.sac.update(rollout_length=8, updates_per_rollout=32, batch_size=256, capacity=200_000)
    c.sac.update(learning_starts=10_000, learning_rate=5e-4, critic_rate=5e-4, gamma=0.98)
    c.sac.update(target_rate=0.01, hindsight="future", hindsight_k=4)
    c.stop.steps = 200_000
    c.evaluate.every_steps = 50_000
    return c
