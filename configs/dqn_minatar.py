"""DQN with a small CNN on MinAtar's Breakout: double, dueling, prioritised, three-step returns.

The memory holds 100,000 steps, and there is an update for every four environment steps.

Command:  jaxrl train dqn_minatar
Others:   --env=gymnax:Asterix-MinAtar, gymnax:Freeway-MinAtar, gymnax:SpaceInvaders-MinAtar
Hardware: 2 CPU cores
Minutes:  not measured
Expected: not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = "gymnax:Breakout-MinAtar"
    c.env.num_envs = 8
    c.network.update(encoder="minatar", core="none", hidden_sizes=(128,))
    c.dqn.update(rollout_length=4, updates_per_rollout=8, batch_size=32, capacity=100_000)
    c.dqn.update(learning_starts=5_000, learning_rate=2.5e-4, dueling=True, prioritised=True)
    c.dqn.update(target_period=1_000, exploration_fraction=0.1)
    c.stop.steps = 3_000_000
    c.evaluate.every_steps = 500_000
    c.checkpoint.every_steps = 500_000
    return c
