"""Helpers of tests of collecting from host environments; `device` in conftest.py plays a recorded one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs.host_env import HostEnv
from jaxrl.experience.collector import HostCollectorOptions
from jaxrl.experience.host.fused_collector import FusedCollector
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.parallel.compilation import without_cache

T, B, L = 16, 8, 4


def stepped(agent: Agent, env: HostEnv, length: int = T, **options: Any) -> SteppedCollector:
    """Collects by stepping from Python."""
    return SteppedCollector(agent, env, HostCollectorOptions(length, L, **options))


def fused(agent: Agent, env: HostEnv, length: int = T, **options: Any) -> FusedCollector:
    """Collects with one program, from environments that can be traced."""
    traced = env.traced()
    assert traced is not None
    collector = stepped(agent, env, length, **options)
    return FusedCollector(collector, traced, HostCollectorOptions(length, L, **options), without_cache)


def keys_of(iteration: int) -> jax.Array:
    """Of the actions of an iteration's rollout."""
    return jax.random.split(jax.random.key(iteration), B)


def assert_totals(reward: np.ndarray, counts: Any, done: np.ndarray, totals: Sequence[Any]) -> None:
    """Totals of rollouts are sums by hand over [rollouts * T, B]: of raw rewards, each episode whole.

    Also of one that began in the rollout before. `counts` are the rows that are steps.
    """
    running, steps = np.zeros(B), np.zeros(B)
    for i, total in enumerate(totals):
        returns, lengths = [], []
        for t in range(i * T, (i + 1) * T):
            running, steps = running + reward[t], steps + counts[t]
            returns += list(running[done[t]])
            lengths += list(steps[done[t]])
            running, steps = running * ~done[t], steps * ~done[t]
        assert total.count == len(returns)
        np.testing.assert_allclose(total.episode_return, sum(returns), rtol=1e-5)
        assert total.length == sum(lengths)


def actors() -> list[threading.Thread]:
    """The threads that collect."""
    return [t for t in threading.enumerate() if t.name == "actor"]
