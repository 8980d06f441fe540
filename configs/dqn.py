"""Feed-forward DQN on CartPole: double Q-learning from a replay memory, three-step returns.

Network, batch and updates per environment step follow CleanRL's DQN. The learning rate falls to 0, and the
memory holds a fifth of the run: with a constant rate and the latest 10,000 steps some seeds end below 500
(docs/results_replay.md).

Command:  jaxrl train dqn
Others:   --env=gymnax:Acrobot-v1
Hardware: 2 CPU cores
Minutes:  1 on a shared machine
Expected: greedy return 500 (20 seeds); Acrobot -88 to -79 (5 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = "gymnax:CartPole-v1"
    c.env.num_envs = 8
    c.network.update(core="none", hidden_sizes=(120, 84), activation="relu")
    c.dqn.update(rollout_length=10, updates_per_rollout=8, batch_size=128, capacity=100_000)
    c.dqn.update(learning_starts=1_000, learning_rate=5e-4, schedule="linear", target_period=50)
    c.dqn.exploration_fraction = 0.2
    c.stop.steps = 500_000
    return c
