"""Helpers of tests of collecting from host environments; `device` in conftest.py plays a recorded one."""

from __future__ import annotations

import threading
from typing import Any

import jax

from jaxrl.algorithms import Agent
from jaxrl.envs.host_env import HostEnv
from jaxrl.experience.host.collector import HostCollectorOptions
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


def actors() -> list[threading.Thread]:
    """The threads that collect."""
    return [t for t in threading.enumerate() if t.name == "actor"]
