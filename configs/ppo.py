"""PPO-LSTM on CartPole with its two velocities hidden, so only a policy with memory can balance the pole.

Command:  jaxrl train ppo
Hardware: 2 CPU cores
Minutes:  0.2 to 0.3, compilation included; stops when solved
Expected: greedy return 490 to 500 (5 of 5 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:CartPole-v1"
    c.env.wrappers = ("select_observation(indices=(0, 2))",)  # cart position and pole angle
    c.env.num_envs = 64
    c.network.core = "lstm"
    c.network.hidden_sizes = (64,)
    c.network.core_size = 64
    # Velocities show only as small differences between observations: without scaling nothing is learned.
    c.normalize.observations = True
    c.ppo.rollout_length = 64
    c.ppo.num_epochs = 4
    c.ppo.num_minibatches = 8
    c.ppo.learning_rate = 3e-3
    c.ppo.gamma = 0.98
    c.ppo.entropy_coef = 0.0
    c.stop.steps = 2_000_000
    c.stop["return"] = 490.0  # of 500; solved, so stop
    c.evaluate.every_steps = 100_000
    c.checkpoint.every_steps = 500_000
    return c
