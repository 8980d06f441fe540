"""R2D2 on bsuite's MemoryChain: a cue at the first step must be recalled 40 steps later.

Sequences of 80 steps hold whole episodes, so that gradients reach the cue; they begin with stored carries,
renewed by 20 steps of burn-in.

Command:  jaxrl train r2d2_memory
Hardware: 2 CPU cores
Minutes:  0.5
Expected: greedy return 1.0, the best possible (5 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "r2d2"
    c.env.name = "gymnax:MemoryChain-bsuite(memory_length=40)"
    c.env.num_envs = 64
    c.network.update(core="lstm", hidden_sizes=(64,), core_size=64, activation="relu")
    c.r2d2.update(rollout_length=40, updates_per_rollout=4, batch_size=64, capacity=100_000)
    c.r2d2.update(learning_starts=10_000, learning_rate=1e-3, target_period=20)
    c.stop.steps = 500_000
    return c
