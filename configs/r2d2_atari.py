"""R2D2 on Atari's Pong with the hyperparameters of Kapturowski et al. 2019 (table 2) for one machine.

Sequences of 80 steps after 40 of burn-in, with an overlap of 40; batches of 64, returns of 5 steps,
gamma 0.997, priorities with exponents 0.9 and 0.6, the target network a copy every 2,500 updates, Adam with
rate 1e-4, an LSTM of 512, and rescaled targets in place of clipped rewards; lives end no episode. The paper
has 256 actors; its memory holds 4 million steps, this one half a million.

Command:  jaxrl train r2d2_atari
Others:   --env="envpool:MsPacman-v5(...)", with the same arguments
Memory:   3.6 GB for the steps kept; less with --config.r2d2.capacity=100000
Hardware: one GPU and 8 CPU cores
Minutes:  not measured
Expected: not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config

PREPROCESSING = "frame_skip=4, stack_num=4, gray_scale=True"


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "r2d2"
    c.env.name = f"envpool:Pong-v5({PREPROCESSING})"
    c.env.num_envs = 64
    c.env.stagger = False  # games start with up to 30 random steps and end at different times
    c.network.update(encoder="nature", core="lstm", hidden_sizes=(512,), core_size=512)
    c.network.activation = "relu"
    c.r2d2.update(rollout_length=40, updates_per_rollout=1, batch_size=64, burn_in=40)
    c.r2d2.update(trace_length=80, overlap=40, capacity=500_000, learning_starts=50_000)
    c.r2d2.update(learning_rate=1e-4, target_period=2_500)
    c.stop.steps = 20_000_000
    c.evaluate.update(every_steps=2_000_000, episodes=16)
    c.checkpoint.every_steps = 2_000_000
    return c
