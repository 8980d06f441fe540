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
    c.network.update(core="none", hidden_sizes=(64, 64), activation="silu", separate_value=True)
    c.normalize.update(observations=True, rewards=True)
    c.ppo.update(rollout_length=128, num_epochs=10, num_minibatches=8, learning_rate=1e-3)
    c.ppo.update(gamma=0.98, entropy_coef=0.0)
    c.stop.steps = 1_000_000
    return c
