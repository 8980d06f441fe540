"""XLand-MiniGrid on two devices of a CPU, which takes `jaxrl.parallel.sharding` (jaxlib 0.11.2)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import jax, numpy as np
from jaxrl.envs import registry
from jaxrl.parallel.sharding import SHARDED, Topology

env = registry.make("xminigrid:MiniGrid-Empty-5x5")

def steps(keys):
    state, _ = jax.vmap(env.reset)(keys)
    state, first = jax.vmap(env.step)(keys, state, jax.numpy.zeros(keys.shape, int))
    return first.obs

keys = jax.random.split(jax.random.key(0), 4)
one, two = (np.asarray(Topology.of(count).shard(steps, SHARDED, SHARDED)(keys)) for count in (1, 2))
assert np.array_equal(one, two), (one, two)
print(one.shape)
"""


def test_two_devices_play_what_one_plays() -> None:
    pytest.importorskip("xminigrid")
    env = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["(4,"]), done.stderr
