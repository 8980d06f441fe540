"""How many virtual devices a run on a CPU of two cores takes, in a process whose backend has not started."""

import os

import pytest

from tests import processes

CHOOSE = """
import sys
from jaxrl.config import default_config
from jaxrl.parallel import cpu_devices
from jaxrl.training.device_count import choose_devices

cpu_devices.available_cores = lambda: 2
config = default_config()
config.env.name = sys.argv[1]
config.env.num_envs, config.ppo.rollout_length, config.ppo.num_minibatches = map(int, sys.argv[2:5])
config.network.layer_norm = sys.argv[-1] == "normalized"
most = sys.argv[-1].partition("most=")[2]
print(choose_devices(config, most=int(most) if most else None))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes", "devices"),
    [
        ("gymnax:CartPole-v1", (64, 32, 4), "2"),
        ("gymnax:CartPole-v1", (16, 32, 4), "1"),
        ("envpool:CartPole-v1", (16, 32, 4), "1"),
        # A config of another trainer names a number: what there is of it.
        ("gymnax:CartPole-v1", (64, 32, 4, "most=1"), "1"),
        # Layer normalisation has few threads of its own.
        ("gymnax:CartPole-v1", (16, 32, 4, "normalized"), "2"),
        # An image is worth many vectors.
        ("envpool:Pong-v5", (16, 32, 4), "2"),
    ],
)
def test_a_second_core_is_taken_where_it_pays_off(name, sizes, devices):
    unset = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    done = processes.run("-c", CHOOSE, name, *map(str, sizes), env=env)
    assert done.stdout.strip() == devices, done.stderr
