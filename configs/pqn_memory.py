"""PQN-LSTM on bsuite's MemoryChain: a cue at the first step must be recalled 40 steps later.

Only the last of 41 rewards is informative. Targets of lambda 0.95 carry it back through the rollout, and the
rollout is longer than an episode, so that gradients reach the cue.

Command:  jaxrl train pqn_memory
Hardware: 2 CPU cores
Minutes:  1 on a shared machine
Expected: greedy return 1.0, the best possible (5 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "pqn"
    c.env.name = "gymnax:MemoryChain-bsuite(memory_length=40)"
    c.env.num_envs = 64
    c.network.update(core="lstm", hidden_sizes=(64,), core_size=64, activation="relu")
    c.network.layer_norm = True
    c.pqn.update(rollout_length=64, num_epochs=4, num_minibatches=8, learning_rate=1e-3)
    c.pqn.update(q_lambda=0.95, exploration_end=0.05, exploration_fraction=0.2)
    c.stop.steps = 500_000
    return c
