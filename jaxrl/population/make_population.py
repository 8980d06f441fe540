"""Many whole runs in one compiled program, spread over the devices of this process."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from jaxrl.config import Config
from jaxrl.parallel.cpu_devices import available_cores, offer_cpu_devices
from jaxrl.parallel.sharding import SHARDED, Topology
from jaxrl.population.programs import each_member
from jaxrl.programs.device_runtime import hyperparameters, make_train
from jaxrl.types import Array, PyTree, TrainState


def make_population(config: ConfigDict | Config) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
    """Returns `train(keys, hyperparams=None) -> (states, metrics)`, which trains one member per key.

        train = jaxrl.make_population(config)
        states, metrics = train(jax.random.split(jax.random.key(0), 8))

    A member computes what `make_train` computes from its key and hyperparameters. Members are divided
    among the devices, and `train` is compiled for each new number of them. On a CPU there is one virtual
    device per core, unless JAX was used before in this process or `JAX_NUM_CPU_DEVICES` is set.

    Args:
      config: as for `make_train`; each member trains for `stop.steps`.

    Returns:
      A function of `keys`, [members], and of `hyperparams` (`jaxrl.hyperparameters` with one value per
      member, leaves float32[members]; by default the configuration's). States and metrics
      ([members, iterations]) are on all devices.

    Raises:
      ConfigError: a field is unknown, of the wrong type or out of range.
    """
    offer_cpu_devices(available_cores())
    member = make_train(config)
    defaults = hyperparameters(config)

    def train(keys: Array, hyperparams: PyTree = None) -> tuple[TrainState, dict[str, Array]]:
        members = len(keys)
        topology = Topology.of(min(members, jax.local_device_count()))
        given = defaults if hyperparams is None else hyperparams
        given = jax.tree.map(lambda x: jnp.broadcast_to(x, (members,)), given)
        # Every device has equally many: if the members do not divide evenly, some are trained twice.
        rows = jnp.arange(-(-members // topology.axis.size) * topology.axis.size) % members
        found = program(topology)(*jax.tree.map(lambda x: x[rows], (keys, given)))
        return jax.tree.map(lambda x: x[:members], found) if len(rows) > members else found

    @functools.cache
    def program(topology: Topology) -> Callable[..., tuple[TrainState, dict[str, Array]]]:
        return topology.shard(each_member(member, topology), (SHARDED, SHARDED), SHARDED)

    return train
