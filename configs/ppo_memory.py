"""PPO-LSTM on bsuite's MemoryChain: a cue at the first step must be recalled 40 steps later.

Gradients never flow across rollouts. A rollout of 64 steps covers the 41 of an episode, so they reach the cue
in the episodes that begin early enough in it. If the rollout is shorter than the delay, what the LSTM
learns is chance (docs/results.md, "MemoryChain and its seeds").

Command:  jaxrl train ppo_memory
Hardware: 2 CPU cores
Minutes:  0.5
Expected: greedy return 1.0, the best possible (docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:MemoryChain-bsuite(memory_length=40)"
    c.env.num_envs = 128
    c.network.update(core="lstm", hidden_sizes=(64,), core_size=64)
    c.ppo.update(rollout_length=64, num_epochs=4, num_minibatches=4, learning_rate=1e-3, gamma=1.0)
    c.ppo.entropy_coef = 0.01
    c.stop.steps = 1_000_000
    return c
