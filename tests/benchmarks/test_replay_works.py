"""benchmarks/peers/replay_works.py: jaxrl does the work that its peers do."""

import sys
from pathlib import Path

import jax
import pytest

from jaxrl import algorithms
from jaxrl.config import resolve
from jaxrl.envs import registry

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers"))

from replay_works import TRAINED


@pytest.mark.parametrize(
    ("name", "steps_per_update", "batch_size"),
    [("dqn", 8, 128), ("minatar", 4, 32), ("dqn_minatar", 4, 32), ("sac", 1, 256), ("r2d2", 64, 32)],
)
def test_updates_are_as_frequent_and_as_large_as_the_peers(name, steps_per_update, batch_size):
    config = TRAINED[name][0](2_000)
    own = config[config.algorithm]
    steps = config.env.num_envs * own.rollout_length
    assert (steps / own.updates_per_rollout, own.batch_size) == (steps_per_update, batch_size)


def test_network_of_minatar_is_that_of_the_runner():
    config = TRAINED["minatar"][0](2_000)
    agent = algorithms.build_agent(resolve(config, 1), registry.make(config.env.name).spec)
    shapes = jax.eval_shape(agent.network.init, jax.random.key(0))
    convolution, dense, head = 9 * 4 * 16 + 16, 8 * 8 * 16 * 128 + 128, 128 * 3 + 3
    assert sum(x.size for x in jax.tree.leaves(shapes)) == convolution + dense + head
