"""PQN with a small CNN on MinAtar's Breakout (10x10 images, one channel for each kind of object).

Network and hyperparameters follow Gallici et al. 2024 for MinAtar, with Adam instead of RAdam.

Command:  jaxrl train pqn_minatar
Others:   --env=gymnax:Asterix-MinAtar, gymnax:Freeway-MinAtar, gymnax:SpaceInvaders-MinAtar
Hardware: 2 CPU cores
Minutes:  not measured
Expected: greedy return 12 to 25 with `stop.steps=1e6` (5 seeds), 53 to 93 with 1e7 (3; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "pqn"
    c.env.name = "gymnax:Breakout-MinAtar"
    c.env.num_envs = 128
    c.network.update(encoder="minatar", core="none", hidden_sizes=(128,), layer_norm=True)
    c.pqn.rollout_length = 32
    c.pqn.sequence_length = 1  # without memory, single steps may be shuffled
    c.pqn.update(num_epochs=2, num_minibatches=32, learning_rate=5e-4, q_lambda=0.65)
    c.pqn.update(exploration_end=0.05, exploration_fraction=0.1)
    c.stop.steps = 3_000_000
    c.evaluate.every_steps = 500_000
    c.checkpoint.every_steps = 500_000
    return c
