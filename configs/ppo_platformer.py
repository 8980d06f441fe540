"""PPO on this project's own platform game: run, jump, switch, exit. 60 levels of five categories.

Command:  jaxrl train ppo_platformer
Others:   --env="jaxrl:Platformer(category='simple')", and medium, complex, mine_heavy, exploration
Hardware: 2 CPU cores
Minutes:  3 to 5
Expected: success in 0.81 to 0.91 of the episodes on the training levels (5 seeds; docs/platformer.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:Platformer"
    c.env.num_envs = 256
    c.network.update(core="none", hidden_sizes=(128, 128), activation="relu", separate_value=True)
    c.ppo.update(rollout_length=64, num_epochs=4, num_minibatches=16, learning_rate=1e-3)
    c.ppo.update(gamma=0.99, entropy_coef=0.01)
    c.stop.steps = 8_000_000
    c.evaluate.every_steps = 1_000_000
    return c
