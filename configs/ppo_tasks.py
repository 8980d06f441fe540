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
    c.network.update(core="none", hidden_sizes=(64, 64), separate_value=True)
    # Each task by its own statistics.
    c.normalize.update(observations=True, rewards=True)
    c.ppo.update(rollout_length=16, num_epochs=4, num_minibatches=4, learning_rate=3e-3)
    c.ppo.update(gae_lambda=0.98, entropy_coef=0.0)
    c.stop.steps = 3_000_000  # 1 M of each
    c.evaluate.update(every_steps=300_000, episodes=96)
    return c
