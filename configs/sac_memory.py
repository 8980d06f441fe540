"""SAC with an LSTM on Pendulum without its velocity, which must be inferred from past observations.

Policy and critics each have a core. They learn from sequences that begin with stored carries,
renewed by 10 steps of burn-in.

Command:  jaxrl train sac_memory
Hardware: 2 CPU cores
Minutes:  2 on one core
Expected: greedy return -1,263 to -850 (5 seeds), which is not solved (docs/results_replay.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "sac"
    c.env.name = "gymnax:Pendulum-v1"
    c.env.num_envs = 16
    c.env.wrappers = ("select_observation(indices=(0, 1))",)
    c.network.core = "lstm"
    c.network.hidden_sizes = (64,)
    c.network.core_size = 64
    c.network.activation = "relu"
    c.normalize.observations = False
    c.sac.rollout_length = 20
    c.sac.updates_per_rollout = 40
    c.sac.batch_size = 32
    c.sac.burn_in = 10
    c.sac.trace_length = 20
    c.sac.overlap = 10
    c.sac.capacity = 100_000
    c.sac.learning_starts = 2_000
    c.sac.learning_rate = 1e-3
    c.sac.critic_rate = 1e-3
    c.evaluate.every_steps = 8_000
    c.stop.steps = 40_000
    return c
