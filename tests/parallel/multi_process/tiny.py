"""A run in which everything has a state of its own, that several processes can share in several ways.

Command:  launch/local_pod.sh 2 --devices=2 --config=tests/parallel/multi_process/tiny.py --workdir=runs/tiny
Hardware: 2 CPU cores
Minutes:  until it is ended
Expected: nothing learnt
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config

NUM_ENVS, ROLLOUT_LENGTH = 24, 8
STEPS = NUM_ENVS * ROLLOUT_LENGTH  # of one iteration


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:CartPole-v1"
    c.env.num_envs = NUM_ENVS
    c.network.update(core="gru", hidden_sizes=(8,), core_size=8)
    c.normalize.observations = True
    # A constant rate: what an iteration computes does not depend on the budget.
    c.ppo.update(rollout_length=ROLLOUT_LENGTH, num_epochs=2, num_minibatches=2)
    c.ppo.update(learning_rate=1e-2, schedule="constant")
    c.stop.steps = 100_000 * STEPS
    c.log.update(every_steps=STEPS, writers=("jsonl",), layers=False)
    c.evaluate.update(every_steps=0, episodes=4)
    c.checkpoint.update(every_steps=2 * STEPS, keep=1000)
    return c
