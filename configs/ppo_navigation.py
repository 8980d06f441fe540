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
    c.network.update(core="none", hidden_sizes=(128, 128), activation="relu", separate_value=True)
    c.normalize.observations = True
    c.ppo.update(rollout_length=64, num_epochs=4, num_minibatches=16, learning_rate=1e-3)
    c.ppo.update(gamma=0.99, entropy_coef=0.0)
    c.stop.steps = 8_000_000
    c.evaluate.every_steps = 2_000_000
    return c
