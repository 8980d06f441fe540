"""DQN with hindsight on BitFlip: 16 bits must be flipped into a goal, one at a time.

Without hindsight (`--config.dqn.hindsight=none`) it met no goal in 200,000 steps.

Command:  jaxrl train dqn_hindsight
Others:   --env="jaxrl:BitFlip(bits=32)"
Hardware: 2 CPU cores
Minutes:  4 on a busy machine
Expected: greedy return -6.5 to -5.8, 32 bits -14.4 to -13.8, all goals met (5 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = "jaxrl:BitFlip(bits=16)"
    c.env.num_envs = 16
    c.network.encoder = "joint"
    c.network.core = "none"
    c.network.hidden_sizes = (256,)
    c.network.activation = "relu"
    c.normalize.observations = False
    c.dqn.rollout_length = 16
    c.dqn.updates_per_rollout = 32
    c.dqn.batch_size = 128
    c.dqn.capacity = 100_000
    c.dqn.learning_starts = 1_000
    c.dqn.learning_rate = 1e-3
    c.dqn.gamma = 0.98
    c.dqn.n_step = 1
    c.dqn.target_period = 1
    c.dqn.target_rate = 0.05
    c.dqn.hindsight = "future"
    c.dqn.hindsight_k = 4
    c.dqn.exploration_fraction = 0.3
    c.stop.steps = 400_000
    return c
