"""A run in which everything has a state of its own, with many checkpoints a second, to be killed in.

Command:  python -m jaxrl.main --config=tests/faults/tiny.py
Hardware: 1 CPU core
Minutes:  0.1 to 0.2
Expected: nothing learnt
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config

NUM_ENVS, ROLLOUT_LENGTH = 16, 8
STEPS = NUM_ENVS * ROLLOUT_LENGTH  # of one iteration


def get_config() -> ConfigDict:
    c = default_config()
    c.num_devices = 1
    c.env.name = "gymnax:CartPole-v1"  # resets at random; a time limit, so first episodes are staggered
    c.env.num_envs = NUM_ENVS
    c.network.update(core="lstm", hidden_sizes=(8,), core_size=8)
    c.normalize.update(observations=True, rewards=True)
    c.ppo.update(rollout_length=ROLLOUT_LENGTH, sequence_length=4, num_epochs=2, num_minibatches=2)
    c.ppo.update(learning_rate=1e-2, schedule="linear")
    c.stop.steps = 40 * STEPS
    # Intervals that meet seldom, so that checkpoints are made in the middle of a log interval.
    c.log.update(every_steps=3 * STEPS, layers=False)
    c.evaluate.update(every_steps=10 * STEPS, episodes=4)
    c.checkpoint.update(every_steps=2 * STEPS, keep=3)
    return c
