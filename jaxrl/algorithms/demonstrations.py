"""Demonstrations as learners see them: the memory that they request, and its samples.

The memory itself is `jaxrl.experience.demonstrations`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.replay import ReplayPlan
from jaxrl.envs.base import Box, Discrete, EnvSpec, Mixed, MultiDiscrete
from jaxrl.types import Acting, Array, Axis, PyTree, Sharded, Trajectory


@dataclass(frozen=True)
class DemonstrationPlan:
    """The memory of demonstrations that an algorithm asks for.

    Episodes follow each other in lanes, as an environment's do in its rollouts.

    Attributes:
      field: of the configuration that names the folder, for errors.
      spec: of the environment whose spaces they must have.
      lanes: over all devices, which share them out.
      rows: of each lane, a multiple of `chunk`; rows that the episodes leave empty are padding.
      rows_field: of the configuration that sets `rows`, for errors.
      chunk: steps of a sequence.
      validation: share of the episodes that is not learnt from.
    """

    field: str
    folder: str
    spec: EnvSpec
    lanes: int
    rows: int
    rows_field: str
    chunk: int
    validation: float
    axis: Axis


@flax.struct.dataclass
class Demonstrated:
    """Episodes one after the other in the lanes of this device; [R, B, ...].

    Attributes:
      obs: raw, in the dtype of the space.
      reset: bool[R, B], True if `obs` is the first of its episode, and where padding begins.
      action: as the environment took it.
      action_mask: bool[R, B, A] or None.
      valid: bool[R, B], False on padding.
    """

    obs: Annotated[PyTree, Sharded(1)]
    reset: Annotated[Array, Sharded(1)]
    action: Annotated[Array, Sharded(1)]
    action_mask: Annotated[Array | None, Sharded(1)]
    valid: Annotated[Array, Sharded(1)]


@flax.struct.dataclass
class DemonstrationDraw:
    """All demonstrations, at each draw: those to learn from, and those of other episodes."""

    training: Demonstrated
    validation: Demonstrated


@dataclass(frozen=True)
class AggregatePlan:
    """The memory of labelled steps that an algorithm asks for, which grows with its rollouts.

    Attributes:
      draws: how many rows are kept and sampled; it has `sequences`.
      label: of the extras of a trajectory, the right action of each step.
      carry: of the carries of a trajectory, the one that sequences begin with.
    """

    draws: ReplayPlan
    label: str
    carry: str


@flax.struct.dataclass
class AggregateDraw:
    """N sequences of this device, of W = burn_in + L rows each; L are learnt from. See `SequenceBatch`.

    Attributes:
      label: [L, N, *A], the right actions, as the agent stores actions.
      ready: bool[], equal on all devices: enough is kept to learn.
      latest: the rollout just collected.
    """

    obs: PyTree
    reset: Array
    action_mask: Array | None
    carry: PyTree
    label: Array
    usable: Array
    ready: Array
    latest: Trajectory


def counts_hits(spec: EnvSpec) -> bool:
    """True if actions are right or wrong; False if they are so far from the right ones."""
    return isinstance(spec.action_space, Discrete | MultiDiscrete)


def hit_name(spec: EnvSpec) -> str:
    """The metric of `hits`: the share of best actions that are the right ones, or their distance."""
    return "accuracy" if counts_hits(spec) else "absolute_error"


def hits(agent: Agent, best: Array, right: Array) -> Array:
    """float32[...] of each step: 1 where all of an action is right, or its mean absolute error.

    Of an action of several parts that is the mean over their numbers, where a wrong category counts 1. `best`
    and `right` are [..., *A], as the agent stores actions.
    """
    space: Any = agent.spec.action_space
    trailing = tuple(range(best.ndim - len(space.shape), best.ndim))
    if counts_hits(agent.spec):
        return (best == right).all(axis=trailing).astype(jnp.float32)
    error = jnp.abs(agent.to_env(best) - agent.to_env(right))
    if isinstance(space, Mixed):
        chosen = [not isinstance(part, Box) for _, part in space.spaces]
        error = jnp.where(np.repeat(chosen, space.sizes), jnp.minimum(error, 1.0), error)
    return error.mean(axis=trailing)


@flax.struct.dataclass
class Retraced:
    """The outputs of an agent along demonstrations, as if it had seen them while acting.

    Attributes:
      carry: tree of [R / L, B, ...], before the first step of each chunk.
      log_prob: float32[R, B], of the demonstrated actions.
      greedy: [R, B, *A], its best actions.
    """

    carry: PyTree
    log_prob: Array
    greedy: Array


def retrace(agent: PyTree, acting: Acting, shown: Demonstrated, action: Array, chunk: int) -> Retraced:
    """Runs an agent over whole episodes, each from the carry that acting would begin it with.

    Args:
      agent: an actor-critic.
      shown: [R, B, ...]; R is a multiple of `chunk`.
      action: [R, B, *A], the demonstrated ones as the agent stores them.
      chunk: L; chunks run one after the other, so a pass keeps the activations of one.
    """
    seen = agent.normalize(acting, shown.obs)
    split = lambda x: x.reshape(-1, chunk, *x.shape[1:])  # noqa: E731
    inputs = jax.tree.map(split, (seen, shown.reset, shown.action_mask, action))

    def step(carry: PyTree, xs: tuple[PyTree, Array, Array | None, Array]) -> tuple[PyTree, Retraced]:
        obs, reset, mask, taken = xs
        out = agent.apply(acting, obs, carry, reset, mask)
        return out.carry, Retraced(carry, out.distribution.log_prob(taken), agent.greedy(out))

    start = agent.initial_carry(shown.reset.shape[1])
    _, found = jax.lax.scan(step, start, inputs)
    join = lambda x: x.reshape(-1, *x.shape[2:])  # noqa: E731
    return Retraced(found.carry, join(found.log_prob), join(found.greedy))


def class_weights(action: Array, valid: Array, classes: int, axis: Axis) -> Array:
    """float32[...]: N / (K n_a) for the action a of each step, over the K actions that were demonstrated.

    So every action weighs the same in the sum over all steps, which stays N ("balanced" in scikit-learn).
    Actions int[...] are below `classes`; those not `valid` do not count. Counts are over all devices.
    """
    chosen = jax.nn.one_hot(action, classes, dtype=bool) & valid[..., None]
    count_A = axis.psum(chosen.sum(tuple(range(action.ndim)), dtype=jnp.float32))
    present = (count_A > 0).sum(dtype=jnp.float32)
    weight_A = count_A.sum() / jnp.maximum(present * count_A, 1.0)
    return jnp.where(valid, weight_A[jnp.clip(action, 0, classes - 1)], 0.0)
