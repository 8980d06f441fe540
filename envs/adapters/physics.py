"""Suites of physics in Brax's form: a state with `obs`, `reward`, `done` and `metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.adapters.suite import numbers, raw_key, suite_rules
from jaxrl.envs.base import InfoMetric, TimeStep
from jaxrl.envs.trees import strong_types


@flax.struct.dataclass
class PhysicsState:
    """The suite's own state, and int32[], the steps of this episode so far."""

    env: Any
    time: jax.Array


def reset(env: Any, key: jax.Array) -> tuple[PhysicsState, Any]:
    """The first state of an episode of the suite's `env`, and its observation."""
    with suite_rules():
        state = strong_types(env.reset(raw_key(key)))
    return PhysicsState(state, jnp.zeros((), jnp.int32)), state.obs


def step(env: Any, limit: int, state: PhysicsState, action: jax.Array) -> tuple[PhysicsState, TimeStep]:
    """One step: what the suite calls done is a termination, `limit` steps are a truncation."""
    with suite_rules():
        env_state = strong_types(env.step(state.env, action))
    time = state.time + 1
    timestep = TimeStep(
        obs=env_state.obs,
        reward=env_state.reward.astype(jnp.float32),
        terminated=env_state.done > 0,
        truncated=time >= limit,
        info=numbers(env_state.metrics),
    )
    return PhysicsState(env_state, time), timestep


def reports(metrics: Iterable[str]) -> tuple[InfoMetric, ...]:
    """The metrics of the suite: the sum of each part of the reward, the mean of everything else."""
    return tuple(InfoMetric(key, "sum" if key.startswith("reward") else "mean") for key in sorted(metrics))
