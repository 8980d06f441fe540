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
    c.env.update(num_envs=16, wrappers=("select_observation(indices=(0, 1))",))
    c.network.update(core="lstm", hidden_sizes=(64,), core_size=64, activation="relu")
    c.normalize.observations = False
    c.sac.update(rollout_length=20, updates_per_rollout=40, batch_size=32, burn_in=10)
    c.sac.update(trace_length=20, overlap=10, capacity=100_000, learning_starts=2_000)
    c.sac.update(learning_rate=1e-3, critic_rate=1e-3)
    c.evaluate.every_steps = 8_000
    c.stop.steps = 40_000
    return c
