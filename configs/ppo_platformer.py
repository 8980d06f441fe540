"""PPO on this project's own platform game: run, jump, switch, exit. The category simple; others by --env.

Command:  jaxrl train ppo_platformer
Others:   --env="jaxrl:Platformer(category='medium')", and complex, mine_heavy, exploration
Hardware: 2 CPU cores
Minutes:  1 to 2
Expected: success in every episode on the 12 levels that it trains on (docs/platformer.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:Platformer(category='simple')"
    c.env.num_envs = 256
    c.network.core = "none"
    c.network.hidden_sizes = (128, 128)
    c.network.activation = "relu"
    c.network.separate_value = True
    c.ppo.rollout_length = 64
    c.ppo.num_epochs = 4
    c.ppo.num_minibatches = 16
    c.ppo.learning_rate = 1e-3
    c.ppo.gamma = 0.99
    c.ppo.entropy_coef = 0.01
    c.stop.steps = 4_000_000
    c.log.every_steps = 250_000
    c.evaluate.every_steps = 1_000_000
    return c
