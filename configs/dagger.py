"""DAgger on CartPole with its two velocities hidden: a trained policy labels an LSTM's own episodes.

The teacher is made by `jaxrl train ppo --workdir=runs/teacher`.

Command:  jaxrl train dagger
Hardware: 2 CPU cores
Minutes:  0.5 to 5, busy machine
Expected: greedy return 484 to 500 after 2,048 to 4,096 steps (5 seeds; docs/results_imitation.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "dagger"
    c.env.name = "gymnax:CartPole-v1"
    c.env.wrappers = ("select_observation(indices=(0, 2))",)  # cart position and pole angle
    c.env.num_envs = 16
    # The teacher has the same network.
    c.network.update(core="lstm", hidden_sizes=(64,), core_size=64)
    c.normalize.observations = True
    c.dagger.update(teacher="runs/teacher", rollout_length=32, updates_per_rollout=16)
    c.dagger.update(trace_length=16, burn_in=16, batch_size=32, learning_rate=1e-3)
    c.dagger.update(learning_starts=1_000, capacity=50_000, beta_fraction=0.1)
    c.stop.steps = 50_000
    c.stop["return"] = 475.0  # of 500; the clone plays as its teacher does
    c.evaluate.update(every_steps=1_024, episodes=100)
    return c
