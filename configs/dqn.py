"""Feed-forward DQN on CartPole: double Q-learning from a replay memory, three-step returns.

Network, learning rate, batch, memory and updates for each environment step follow CleanRL's DQN.

Command:  jaxrl train dqn
Others:   --env=gymnax:Acrobot-v1
Hardware: 2 CPU cores
Minutes:  1 on a shared machine
Expected: greedy return 392 to 500 (11 seeds, 9: 500); Acrobot -92 to -83 (3 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = "gymnax:CartPole-v1"
    c.env.num_envs = 8
    c.network.core = "none"
    c.network.hidden_sizes = (120, 84)
    c.network.activation = "relu"
    c.dqn.rollout_length = 10
    c.dqn.updates_per_rollout = 8
    c.dqn.batch_size = 128
    c.dqn.capacity = 100_000
    c.dqn.learning_starts = 1_000
    c.dqn.learning_rate = 5e-4
    c.dqn.schedule = "linear"
    c.dqn.target_period = 50
    c.dqn.exploration_fraction = 0.2
    c.stop.steps = 500_000
    return c
