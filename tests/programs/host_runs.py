"""Small runs on host environments, for tests of what they learn and of what goes wrong."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import resolve
from jaxrl.envs import registry
from jaxrl.envs.host_env import HostOptions
from jaxrl.experience.collector import HostCollectorOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.metrics.clock import Clock
from jaxrl.parallel.compilation import without_cache
from jaxrl.parallel.sharding import Topology
from jaxrl.programs import host_start
from jaxrl.programs.host_runtime import HostRuntime
from jaxrl.reporting.writers import MultiWriter, Writer
from jaxrl.runs.folder import RunFolder
from jaxrl.training.trainer import Trainer
from jaxrl.types import BehaviourPolicy

ENVS, LENGTH = 8, 8
STEPS = ENVS * LENGTH  # of one iteration
MODULE = "gymnasium:tests.envs.host_environments"


class Recorder(Writer):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.append(dict(scalars))


def tiny_config(
    iterations: int, name: str = "envpool:CartPole-v1(max_episode_steps=20)", **changes: Any
) -> ConfigDict:
    """`host__overlap=False` sets `host.overlap`."""
    config = jaxrl.default_config()
    config.seed = 5
    config.num_devices = 1
    config.env.update(name=name, num_envs=ENVS)
    config.network.update(core="none", hidden_sizes=(4,), core_size=4)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=LENGTH, sequence_length=4, num_epochs=1, num_minibatches=2)
    config.ppo.learning_rate = 1e-2
    config.ppo.schedule = "constant"
    config.stop.steps = iterations * STEPS
    config.evaluate.update(every_steps=0, episodes=3)
    config.log.update(every_steps=2 * STEPS, layers=False)
    config.checkpoint.every_steps = 0
    config.update_from_flattened_dict({key.replace("__", "."): value for key, value in changes.items()})
    return config


def trainer(config: ConfigDict, folder: Path | None = None) -> tuple[Trainer, Recorder]:
    recorder, run = Recorder(), None
    if folder is not None:
        run = RunFolder(str(folder))
        run.create()
    return Trainer(config, run, MultiWriter([recorder])), recorder


def learned(state: Any) -> list[np.ndarray]:
    parts = (
        state.learner.policy.params,
        state.learner.opt_state,
        state.learner.policy.obs_stats,
        state.learner.reward_stats,
    )
    return [np.asarray(x) for x in jax.tree.leaves(parts)]


def assert_same(left: Any, right: Any) -> None:
    for x, y in zip(learned(left), learned(right), strict=True):
        np.testing.assert_array_equal(x, y)


def nothing_is_left() -> bool:
    return not [t for t in threading.enumerate() if t.name in ("actor", "player")]


def runtime_of(config: ConfigDict) -> HostRuntime:
    return HostRuntime(resolve(config, 1), Topology.of(1), Clock(), lambda: False)


def by_hand(config: ConfigDict, iterations: int, staleness: int) -> Any:
    """A plain loop: roll out with the parameters of `staleness` updates ago, learn, and again."""
    runtime = runtime_of(config)
    sharded, resolved = runtime.learning, runtime.learning.per_device.config
    state, index = sharded.initial_state(), jnp.arange(ENVS)
    seeds, cuts = host_start.start_numbers(runtime.spec, state.key, 0, index)
    options = HostOptions(tuple(map(int, seeds)), resolved.host.num_groups, 0, 60.0, tuple(map(int, cuts)))
    env = registry.make_host(resolved.env.name).start(options)
    how = HostCollectorOptions(LENGTH, resolved.sequence_length, staggered=True)
    traced = env.traced()
    assert traced is not None
    collector = FusedCollector(SteppedCollector(runtime.agent, env, how), traced, how, without_cache)
    runtime.compile()
    interval, seen = sharded.empty_interval(), []
    for i in range(iterations):
        seen.append(jax.tree.map(jnp.copy, state.learner.policy))
        keys = host_start.action_keys(state.key, i, index)
        acting = seen[max(0, i - staleness)]
        _, trajectory, totals = collector.collect(None, acting, keys)
        if staleness:
            trajectory = dataclasses.replace(trajectory, behaviour=BehaviourPolicy(acting.obs_stats))
        totals = jax.tree.map(lambda x: x[None], totals)
        state, interval, _ = runtime.compiled(state, interval, trajectory, totals)
    env.close()
    return state
