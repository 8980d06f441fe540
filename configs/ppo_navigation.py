"""PPO on this project's own navigation task: lidar, velocity and the way to the goal, among moving obstacles.

Command:  jaxrl train ppo_navigation
Hardware: 2 CPU cores
Minutes:  3 to 6
Expected: success in 0.94 to 0.98 of the episodes of the full room (5 seeds; docs/navigation.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:Navigation"
    c.env.num_envs = 256
    # Obstacles move: their speed shows in several readings.
    c.env.wrappers = ("frame_stack(frames=3)",)
    c.network.core = "none"
    c.network.hidden_sizes = (128, 128)
    c.network.activation = "relu"
    c.network.separate_value = True
    c.normalize.observations = True
    c.ppo.rollout_length = 64
    c.ppo.num_epochs = 4
    c.ppo.num_minibatches = 16
    c.ppo.learning_rate = 1e-3
    c.ppo.gamma = 0.99
    c.ppo.entropy_coef = 0.0
    c.stop.steps = 8_000_000
    c.evaluate.every_steps = 2_000_000
    return c
