"""PPO with an LSTM on random mazes of 13 x 13 cells, with a view of 5 x 5.

Command:  jaxrl train ppo_maze
Hardware: 2 CPU cores
Minutes:  4 (busy machine)
Expected: 0.86 to 0.90 of the training episodes end at the goal (5 fresh seeds); of all mazes 0.97 can be
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:Maze"
    c.env.num_envs = 64
    c.network.update(hidden_sizes=(128,), core="lstm", core_size=128)
    c.ppo.update(rollout_length=128, num_epochs=4, num_minibatches=4, learning_rate=5e-4)
    c.ppo.update(gamma=0.995, gae_lambda=0.98, entropy_coef=1e-3)
    c.stop.steps = 1_500_000
    c.evaluate.every_steps = 500_000
    c.evaluate.modes = ("sampled",)  # the most likely actions may turn on the spot for ever
    return c
