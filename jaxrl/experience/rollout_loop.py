"""The values that go into a step of a rollout on the device, through it, and out of it."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxrl.algorithms import Agent
from jaxrl.envs.base import TimeStep
from jaxrl.types import Array, CollectorState, PyTree


@flax.struct.dataclass
class StepInputs:
    """The inputs of a step [B, ...], or of all [T, B, ...].

    Attributes:
      noise: tree, of the actions.
      task: tree, of episodes that start in the step; None without a task sampler.
      starts: what `SplitStarts.ahead` computed of first states of episodes; None without `few_kernels`.
    """

    keys: Array
    noise: PyTree
    task: PyTree
    starts: PyTree


@flax.struct.dataclass
class StepReport:
    """The report of a step on episodes.

    Attributes:
      info: float32 by key, see `EpisodeReports.select`.
      reward: float32, the reported one; None if it is the row's own.
      done: bool, True if the episode ended; None if it is the row's own.
    """

    info: dict[str, Array]
    reward: Array | None
    done: Array | None


@flax.struct.dataclass
class RolloutLoop:
    """Before a step.

    Attributes:
      at: where the environments are.
      final: with `few_kernels`, what the step before left to do.
    """

    at: CollectorState
    final: FinalObservations | None


@flax.struct.dataclass
class FinalObservations:
    """Observations, and their action masks, whose value the next step computes: the last ones where `cut`."""

    obs: PyTree
    mask: Array | None
    cut: Array


def is_cut(timestep: TimeStep) -> Array:
    """bool[B], where an episode was truncated: the value of its last observation stands for the rest."""
    return timestep.truncated & ~timestep.terminated


def where_cut(cut: Array, tree: PyTree) -> PyTree:
    """Leaves [B, ...], 0 except if an episode was cut off."""
    return jax.tree.map(
        lambda x: jnp.where(cut.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.zeros((), x.dtype)), tree
    )


def randomness(agent: Agent, keys_B: Array, index_B: Array, length: int) -> tuple[Array, PyTree]:
    """Keys of environments [T, B] and the action noise [T, B, ...] of a whole rollout, sampled at once."""
    env_keys_B, noise_keys_B = jax.vmap(jax.random.split, out_axes=1)(keys_B)
    at = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    env_keys_TB = jax.vmap(at, in_axes=(0, None), out_axes=1)(env_keys_B, jnp.arange(length))
    draw = lambda key, index: agent.draw_noise(key, (length,), index)  # noqa: E731
    return env_keys_TB, jax.vmap(draw, out_axes=1)(noise_keys_B, index_B)


def count_operations(jaxpr: Any) -> int:
    """The operations of a traced function, with those of the functions that it calls, loops once."""
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_function):
            if _is_function(part):
                total += count_operations(part.jaxpr if isinstance(part, ClosedJaxpr) else part)
    return total


def _is_function(part: Any) -> bool:
    return isinstance(part, Jaxpr | ClosedJaxpr)
