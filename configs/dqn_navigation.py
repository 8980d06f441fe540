"""DQN with hindsight on Navigation with sparse rewards: a goal is met or not, without any distance to it.

Command:  jaxrl train dqn_navigation
Others:   --config.dqn.hindsight=none, which takes three times as many steps to the same result
Hardware: 2 CPU cores
Minutes:  4 on a busy machine
Expected: success in 95 to 98% of the episodes (5 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = "jaxrl:Navigation(control='discrete', goal_conditioned=True, reward='sparse')"
    c.env.num_envs = 32
    c.network.update(encoder="joint", core="none", hidden_sizes=(256, 256), activation="relu")
    c.normalize.observations = False
    c.dqn.update(rollout_length=8, updates_per_rollout=32, batch_size=256, capacity=200_000)
    c.dqn.update(learning_starts=10_000, learning_rate=5e-4, gamma=0.98, n_step=1, target_period=1)
    c.dqn.update(target_rate=0.01, hindsight="future", hindsight_k=4, exploration_fraction=0.3)
    c.dqn.exploration_end = 0.1
    c.stop.steps = 200_000
    c.evaluate.every_steps = 50_000
    return c
