"""Learning computes of its sequences what the agent said when it acted.

Before the first update a ratio of probabilities is 1 and a value is the one that was stored, at every step,
for every core, across ends of episodes inside sequences. A carry, a reset or a minibatch that is off by one
step changes it at once, and nothing else would tell.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms, envs
from jaxrl.config import Config
from jaxrl.envs.host_env import HostOptions
from jaxrl.experience.collector import HostCollector, HostCollectorOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.parallel.compilation import without_cache
from jaxrl.types import Acting, Axis, PyTree, Trajectory
from tests.algorithms.extras import (
    LOOSER,
    MISTAKE,
    ROLLOUTS,
    differences,
    on_device,
    require_same,
)
from tests.algorithms.tiny import CHUNK, ENVS, LENGTH, loud, tiny_config

ON_HOST = "envpool:CartPole-v1(max_episode_steps=20)"

slow = pytest.mark.slow


def on_host(config: Config, fused: bool) -> tuple[Any, Acting, list[Trajectory]]:
    factory = envs.make_host(ON_HOST)
    agent = algorithms.build_agent(config, factory.spec)
    algorithm = algorithms.build(config, agent, Axis())
    learner = jax.jit(algorithm.init)(jax.random.key(0), algorithm.hyperparameters(config))
    acting = algorithm.acting(learner)
    acting = dataclasses.replace(acting, params=loud(acting.params))
    env = factory.start(HostOptions(seeds=tuple(range(ENVS)), num_groups=2))
    options = HostCollectorOptions(LENGTH, CHUNK)
    collector: HostCollector = SteppedCollector(agent, env, options)
    if fused:
        traced = env.traced()
        assert traced is not None
        collector = FusedCollector(collector, traced, options, without_cache)  # type: ignore[arg-type]
    keys = [jax.random.split(jax.random.key(2 + i), ENVS) for i in range(ROLLOUTS)]
    found = [collector.collect(None, acting, each)[1] for each in keys]
    env.close()
    return algorithm, acting, found


# The fast tests ask the same of PPO with lstm in ppo/test_update.py. A core that goes step by step, one that
# scans in parallel, and none; that a sequence equals its steps with every core:
# tests/networks/test_core_check.py. A2C, PQN and a DQN without a core: on the host, below.
@slow
@pytest.mark.parametrize(
    ("algorithm", "core"),
    [
        *(("ppo", "mingru"), ("ppo", "none"), ("uniform_dqn", "lstm")),
        *(pytest.param(*x, marks=pytest.mark.long) for x in (("pqn", "mingru"), ("uniform_dqn", "none"))),
    ],
)
def test_on_the_device(algorithm: str, core: str) -> None:
    require_same(*on_device(tiny_config(algorithm, network__core=core)))


# By head, the actions that it chooses: the other families of adapters, beside one that masks.
HEADS = {
    "multi_categorical": "several",
    "gaussian": "continuous",
    "tanh_gaussian": "continuous",
    "gaussian_mixture": "continuous",
    "mixed": "mixed",
}


# The parts of `mixed` are those of `multi_categorical` and `gaussian`.
@slow
@pytest.mark.parametrize(
    "head",
    [pytest.param(x, marks=pytest.mark.long) if x in ("multi_categorical", "gaussian") else x for x in HEADS],
)
def test_every_head(head: str) -> None:
    name = f"tests.algorithms.environments:Chance(actions={HEADS[head]!r})"
    require_same(*on_device(tiny_config("ppo", env__name=name, network__head=head)))


# R2D2 with the other cores: tests/algorithms/test_r2d2_cores.py.
@slow
@pytest.mark.parametrize("algorithm", ["dqn", "sac", "dagger", "r2d2"])
def test_of_what_a_memory_draws(algorithm: str) -> None:
    require_same(*on_device(tiny_config(algorithm)))


# Both collectors, and every algorithm with one.
@slow
@pytest.mark.parametrize(
    ("algorithm", "core", "fused"),
    [
        *(("ppo", "lstm", False), ("a2c", "gru", True), ("pqn", "lstm", True)),
        *(("uniform_dqn", "none", True), pytest.param("ppo", "mingru", True, marks=pytest.mark.long)),
    ],
)
def test_on_the_host(algorithm: str, core: str, fused: bool) -> None:
    config = tiny_config(algorithm, env__name=ON_HOST, network__core=core)
    require_same(*on_host(config, fused))


def carries_by_hand(agent: Any, acting: Acting, trajectories: list[Trajectory]) -> PyTree:
    """The carries before each row of all rollouts, and after the last: [rows + 1, B, ...]."""
    joined = {
        name: jax.tree.map(lambda *x: jnp.concatenate(x), *(getattr(t, name) for t in trajectories))
        for name in ("obs", "reset", "action_mask")
    }
    first = jax.tree.map(lambda x: x[0], trajectories[0].carry)

    def step(carry: PyTree, xs: Any) -> tuple[PyTree, PyTree]:
        return agent.forward(acting, xs["obs"], carry, xs["reset"], xs["action_mask"]).carry, carry

    last, before = jax.jit(lambda: jax.lax.scan(step, first, joined))()
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, last)


@slow
@pytest.mark.parametrize("algorithm", ["ppo", "uniform_dqn"])
def test_a_carry_of_another_step_is_found(algorithm: str) -> None:
    config = tiny_config(algorithm)
    learning, acting, trajectories = on_device(config)
    carries = carries_by_hand(learning.agent, acting, trajectories)

    def cut(rollout: int, shift: int) -> Trajectory:
        at = rollout * LENGTH + np.arange(0, LENGTH, CHUNK) + shift
        return dataclasses.replace(trajectories[rollout], carry=jax.tree.map(lambda x: x[at], carries))

    np.testing.assert_allclose(
        *(jax.tree.leaves(t.carry)[0] for t in (cut(1, 0), trajectories[1])), atol=ROLLOUTS * LOOSER
    )
    for shift in (-1, 1):
        found = differences(learning, acting, [cut(1, shift)])
        assert min(found.values()) > MISTAKE, (shift, found)
    # And a reset that comes one step late.
    late = dataclasses.replace(trajectories[1], reset=jnp.roll(trajectories[1].reset, 1, axis=0))
    found = differences(learning, acting, [late])
    assert min(found.values()) > MISTAKE, found
