"""Feed-forward PPO on CartPole; other classic control tasks by name.

Command:  jaxrl train ppo_mlp
Others:   --env=gymnax:Acrobot-v1, --env=gymnax:MountainCar-v0
Hardware: 2 CPU cores
Minutes:  0.2
Expected: greedy return 493 to 500; Acrobot -81 to -73; MountainCar -109 to -98 (10 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:CartPole-v1"
    c.env.num_envs = 32
    c.network.update(core="none", hidden_sizes=(64, 64), separate_value=True)
    c.normalize.update(observations=True, rewards=True)
    # Short rollouts give many updates early, which helps to find the rare goal of MountainCar.
    c.ppo.update(rollout_length=16, num_epochs=4, num_minibatches=4, learning_rate=3e-3)
    c.ppo.update(gae_lambda=0.98, entropy_coef=0.0)
    c.stop.steps = 1_000_000
    return c
