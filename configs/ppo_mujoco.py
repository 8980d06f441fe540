"""PPO with a Gaussian policy on MuJoCo's Walker2d; observations and rewards are normalised.

Command:  jaxrl train ppo_mujoco
Others:   --env=envpool:Ant-v4 or Humanoid-v4; HalfCheetah, Hopper and BipedalWalker by `--env` alone
Hardware: 1 CPU core
Minutes:  4
Expected: greedy return 1080 to 4675, median 4003 (15 runs; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "envpool:Walker2d-v4"
    c.env.num_envs = 64
    c.network.update(core="none", hidden_sizes=(64, 64), separate_value=True)
    c.normalize.update(observations=True, rewards=True, clip_rewards=10.0)
    c.ppo.rollout_length = 32
    c.ppo.sequence_length = 1  # without memory, single steps may be shuffled
    c.ppo.num_minibatches = 32
    # Found by configs/searches/walker2d.yaml.
    c.ppo.update(num_epochs=5, learning_rate=8e-4, gamma=0.995, gae_lambda=0.9, clip_range=0.1)
    c.ppo.entropy_coef = 0.0
    c.stop.steps = 1_000_000
    c.evaluate.update(every_steps=200_000, episodes=16)
    c.checkpoint.every_steps = 200_000
    return c
