"""DQN on Atari's Pong with the network, memory and rates of Mnih et al. 2015; double, three-step returns.

The memory keeps a million frames of 84 x 84 bytes, 7.1 GB; stacks of four are rebuilt when they are
sampled. An update on 32 of them follows every four steps, the target network is a copy every 10,000 steps
of the game (2,500 updates here), epsilon falls to 0.01 over the first million. Adam with the rate of
Rainbow (Hessel et al. 2018, table 1) in place of RMSProp, and episodes that end with a life as in the
paper.

Command:  jaxrl train dqn_atari
Others:   --env="envpool:Breakout-v5(...)", with the same arguments
Memory:   7.1 GB for the steps kept; less with --config.dqn.capacity=100000
Hardware: one GPU and 8 CPU cores
Minutes:  not measured
Expected: not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config

# Actions last four frames, pixels are 84 x 84 grey, rewards are clipped to their sign, and a lost life ends
# the episode. The last two affect only learning: logs and evaluations report raw scores of whole games.
PREPROCESSING = "frame_skip=4, stack_num=4, gray_scale=True, reward_clip=True, episodic_life=True"


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = f"envpool:Pong-v5({PREPROCESSING})"
    c.env.num_envs = 8
    c.env.stagger = False  # games start with up to 30 random steps and end at different times
    c.network.update(encoder="nature", core="none", hidden_sizes=(512,), activation="relu")
    c.dqn.update(rollout_length=4, updates_per_rollout=8, batch_size=32, capacity=1_000_000)
    c.dqn.update(learning_starts=50_000, learning_rate=6.25e-5, target_period=2_500)
    c.dqn.update(exploration_end=0.01, exploration_fraction=0.1)
    c.stop.steps = 10_000_000
    c.evaluate.update(every_steps=1_000_000, episodes=16)
    c.checkpoint.every_steps = 1_000_000
    return c
