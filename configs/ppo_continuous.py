"""PPO with a Gaussian policy on Pendulum; observations and rewards are normalised.

Command:  jaxrl train ppo_continuous
Hardware: 2 CPU cores
Minutes:  0.2 to 0.3
Expected: greedy return -145 to -143 (10 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:Pendulum-v1"
    c.env.num_envs = 64
    c.network.core = "none"
    c.network.hidden_sizes = (64, 64)
    c.network.activation = "silu"
    c.network.separate_value = True
    c.normalize.observations = True
    c.normalize.rewards = True
    c.ppo.rollout_length = 128
    c.ppo.num_epochs = 10
    c.ppo.num_minibatches = 8
    c.ppo.learning_rate = 1e-3
    c.ppo.gamma = 0.98
    c.ppo.entropy_coef = 0.0
    c.stop.steps = 1_000_000
    return c
