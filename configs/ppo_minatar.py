"""PPO with a small CNN on MinAtar's Breakout (10x10 images, one channel for each kind of object).

Command:  jaxrl train ppo_minatar
Others:   --env=gymnax:Asterix-MinAtar, gymnax:Freeway-MinAtar, gymnax:SpaceInvaders-MinAtar, with
          --config.ppo.entropy_coef=0.01 --config.ppo.gae_lambda=0.95 --config.stop.steps=1e7
Hardware: 2 CPU cores
Minutes:  1 to 2
Expected: greedy return 7 to 92 (10 seeds; docs/results.md explains the spread, and has all four games)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:Breakout-MinAtar"
    c.env.num_envs = 64
    c.network.update(encoder="minatar", core="none", hidden_sizes=(64,))
    c.ppo.update(rollout_length=128, num_epochs=4, num_minibatches=8, learning_rate=3e-3)
    c.ppo.gae_lambda = 0.9
    # With 0.01 one of two seeds settled into a loop of Breakout that scores 11.
    c.ppo.entropy_coef = 0.03
    c.stop.steps = 3_000_000
    c.evaluate.every_steps = 500_000
    c.checkpoint.every_steps = 500_000
    return c
