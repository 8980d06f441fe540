"""One policy for CartPole, Acrobot and MountainCar at once, which observes the index of its task.

Command:  jaxrl train ppo_tasks
Hardware: 2 CPU cores
Minutes:  0.5
Expected: greedy returns of 500, -83 to -71 and -103 to -98 (8 seeds; docs/tasks.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.tasks = ("gymnax:CartPole-v1", "gymnax:Acrobot-v1", "gymnax:MountainCar-v0")
    c.env.num_envs = 96  # 32 of each
    c.network.encoder = "joint"  # of observation and task: an encoder of each would add what both say
    c.network.core = "none"
    c.network.hidden_sizes = (64, 64)
    c.network.separate_value = True
    # Each task by its own statistics.
    c.normalize.observations = True
    c.normalize.rewards = True
    c.ppo.rollout_length = 16
    c.ppo.num_epochs = 4
    c.ppo.num_minibatches = 4
    c.ppo.learning_rate = 3e-3
    c.ppo.gae_lambda = 0.98
    c.ppo.entropy_coef = 0.0
    c.stop.steps = 3_000_000  # 1 M of each
    c.evaluate.every_steps = 300_000
    c.evaluate.episodes = 96
    return c
