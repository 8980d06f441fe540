"""PPO on Atari's Pong: Nature CNN on four stacked grey frames, sticky actions, one episode per life.

Command:  jaxrl train ppo_atari
Others:   --env="envpool:Breakout-v5(...)", with the same arguments
Hardware: 2 CPU cores
Minutes:  about 60 for 1.5 M steps
Expected: greedy return -4 with `stop.steps=1500000` (1 seed; docs/results_images.md); more was not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config

# The usual preprocessing (Machado et al. 2018; Mnih et al. 2015): actions last 4 frames and are repeated at
# random (sticky), pixels are 84 x 84 grey, rewards are clipped to their sign, and a lost life ends the
# episode. The last two affect only learning: logs and evaluations report the raw scores of whole games.
PREPROCESSING = (
    "frame_skip=4, stack_num=4, gray_scale=True, repeat_action_probability=0.25, "
    "reward_clip=True, episodic_life=True"
)


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = f"envpool:Pong-v5({PREPROCESSING})"
    c.env.num_envs = 32
    c.env.stagger = False  # games start with up to 30 random steps and end at different times
    c.network.update(encoder="nature", core="none", hidden_sizes=(512,))
    c.ppo.rollout_length = 64
    c.ppo.sequence_length = 1  # without memory, single steps may be shuffled
    c.ppo.update(num_epochs=3, num_minibatches=8, learning_rate=5e-4, clip_range=0.1)
    c.ppo.entropy_coef = 0.01
    c.stop.steps = 10_000_000
    c.evaluate.update(every_steps=1_000_000, episodes=16)
    c.checkpoint.every_steps = 200_000
    return c
