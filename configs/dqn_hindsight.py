"""DQN with hindsight on BitFlip: 16 bits must be flipped into a goal, one at a time.

Without hindsight (`--config.dqn.hindsight=none`) it met no goal in 200,000 steps.

Command:  jaxrl train dqn_hindsight
Others:   --env="jaxrl:BitFlip(bits=32)"
Hardware: 2 CPU cores
Minutes:  4 on a busy machine
Expected: greedy return -6.5 to -5.8, 32 bits -14.4 to -13.8, all goals met (5 seeds; docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dqn"
    c.env.name = "jaxrl:BitFlip(bits=16)"
    c.env.num_envs = 16
    c.network.update(encoder="joint", core="none", hidden_sizes=(256,), activation="relu")
    c.normalize.observations = False
    c.dqn.update(rollout_length=16, updates_per_rollout=32, batch_size=128, capacity=100_000)
    c.dqn.update(learning_starts=1_000, learning_rate=1e-3, gamma=0.98, n_step=1, target_period=1)
    c.dqn.update(target_rate=0.05, hindsight="future", hindsight_k=4, exploration_fraction=0.3)
    c.stop.steps = 400_000
    return c
