"""PPO with a Gaussian policy on MuJoCo's HalfCheetah; observations and rewards are normalised.

Command:  jaxrl train ppo_mujoco
Others:   --env=envpool:Hopper-v4, envpool:Walker2d-v4
Hardware: 2 CPU cores
Minutes:  1
Expected: greedy return 1756 to 2438 (5 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "envpool:HalfCheetah-v4"
    c.env.num_envs = 64
    c.network.core = "none"
    c.network.hidden_sizes = (64, 64)
    c.network.separate_value = True
    c.normalize.observations = True
    c.normalize.rewards = True
    c.normalize.clip_rewards = 10.0
    c.ppo.rollout_length = 32
    c.ppo.num_epochs = 10
    c.ppo.num_minibatches = 32
    c.ppo.learning_rate = 3e-4
    c.ppo.entropy_coef = 0.0
    c.stop.steps = 1_000_000
    c.log.every_steps = 20_000
    c.evaluate.every_steps = 200_000
    c.evaluate.episodes = 16
    c.checkpoint.every_steps = 200_000
    return c
