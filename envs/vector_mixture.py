"""`MixtureVectorEnv`: a batch of several tasks, each row of one of them for good."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.agents import AgentRows, MultiAgentEnv
from jaxrl.envs.base import JaxEnv, TimeStep
from jaxrl.envs.mixture import TaskMixture
from jaxrl.envs.trees import select_rows
from jaxrl.envs.vector import VectorEnv

# Slices of rows cost less than a gather, but each is an operation of its own.
_MOST_SLICES = 16


class MixtureVectorEnv:
    """Steps a batch in which row `b` has the task `pattern[b % P]`, and computes no other for it.

    As `VectorEnv`, whose methods it has: what happens to a row depends on its key and action alone, and is
    what happens to it in a batch of its task alone. Its state is a tuple of the states of the tasks' rows. On
    several devices each must hold a multiple of P rows, so that a row's task follows from its global index.

    Args:
      env: the tasks.
      stagger, few_kernels: see `VectorEnv`.
    """

    def __init__(self, env: TaskMixture, stagger: bool = False, few_kernels: bool = False):
        self.env = env
        self.spec = env.spec
        self._played = sorted(set(env.pattern.tolist()))
        self._parts = tuple(VectorEnv(env.tasks[i], stagger, few_kernels) for i in self._played)
        # Of each task its columns where rows are dealt out to as many as the pattern has.
        self._columns = [np.flatnonzero(env.pattern == i).tolist() for i in self._played]
        self.resets_in_rounds = all(part.resets_in_rounds for part in self._parts)
        self.staggered = any(part.staggered for part in self._parts)

    def rows(self, count: int) -> list[np.ndarray]:
        tasks = np.resize(self.env.pattern, count)
        return [np.flatnonzero(tasks == i) for i in self._played]

    def reset(self, keys_B: jax.Array, task_B: Any = None) -> tuple[Any, Any]:
        self._refuse_tasks(task_B)
        started = [part.reset(self._take(keys_B, i)) for i, part in enumerate(self._parts)]
        states, obs = zip(*started, strict=True)
        return states, self._joined(len(keys_B), obs)

    def starts(self, keys_B: jax.Array, task_B: Any = None) -> Any:
        """A tuple, of each task's rows; None for one that resets in rounds."""
        self._refuse_tasks(task_B)
        return tuple(
            None if part.resets_in_rounds else part.starts(self._take(keys_B, i))
            for i, part in enumerate(self._parts)
        )

    def step(
        self, keys_B: jax.Array, state: Any, action_B: jax.Array, starts: Any = None, task_B: Any = None
    ) -> tuple[Any, TimeStep]:
        self._refuse_tasks(task_B)
        states = []
        timesteps = []
        for i, part in enumerate(self._parts):
            own = None if starts is None else starts[i]
            after, timestep = part.step(self._take(keys_B, i), state[i], self._take(action_B, i), own)
            states.append(after)
            # What is only of this task is made for all rows at once.
            shared = {report.name: timestep.info[report.name] for report in self.env.layout.reports}
            timesteps.append(dataclasses.replace(timestep, info=shared))
        joined: TimeStep = self._joined(len(keys_B), timesteps)
        tasks = np.resize(self.env.pattern, len(keys_B))
        own_info = self.env.layout.own_reports(tasks, joined.reported_reward)
        return tuple(states), dataclasses.replace(joined, info=joined.info | own_info)

    def action_mask(self, state: Any) -> jax.Array | None:
        if not self.spec.has_action_mask:
            return None
        masks = [part.action_mask(own) for part, own in zip(self._parts, state, strict=True)]
        return self._joined(sum(len(mask) for mask in masks if mask is not None), masks)

    def solve(self, state: Any) -> jax.Array:
        """None has a solver: `spec.has_solver` is False."""
        raise NotImplementedError

    def is_turn(self, state: Any) -> None:
        """See `VectorEnv.is_turn`."""

    def select(self, mask_B: jax.Array, on_true: Any, on_false: Any) -> Any:
        rows = self.rows(len(mask_B))
        return tuple(select_rows(mask_B[own], *xy) for own, *xy in zip(rows, on_true, on_false, strict=True))

    def _refuse_tasks(self, task_B: Any) -> None:
        if task_B is not None:
            raise ValueError(f"{self.spec.name} takes no tasks: its rows have theirs for good")

    def _divides(self, count: int) -> bool:
        """True if `count` rows are whole repetitions of a pattern that is short enough for slices."""
        period = len(self.env.pattern)
        return period <= _MOST_SLICES and count % period == 0

    def _take(self, x: jax.Array, i: int) -> jax.Array:
        """The rows of the i-th task that is played."""
        period = len(self.env.pattern)
        if not self._divides(len(x)):
            return x[self.rows(len(x))[i]]
        split = x.reshape(-1, period, *x.shape[1:])
        own = jnp.stack([split[:, column] for column in self._columns[i]], axis=1)
        return own.reshape(-1, *x.shape[1:])

    def _joined(self, count: int, parts: Any) -> Any:
        """The rows of all tasks in their order, of trees of each task's rows; `_take` backwards."""
        period = len(self.env.pattern)
        if not self._divides(count):
            order = np.argsort(np.concatenate(self.rows(count)))
            return jax.tree.map(lambda *xs: jnp.concatenate(xs)[order], *parts)

        def join(*xs: jax.Array) -> jax.Array:
            split = [x.reshape(count // period, -1, *x.shape[1:]) for x in xs]
            by_column = {
                column: part[:, turn]
                for part, columns in zip(split, self._columns, strict=True)
                for turn, column in enumerate(columns)
            }
            joined = jnp.stack([by_column[column] for column in range(period)], axis=1)
            return joined.reshape(count, *joined.shape[2:])

        return jax.tree.map(join, *parts)


BatchedEnv = VectorEnv | MixtureVectorEnv | AgentRows


def vector_env(env: JaxEnv, stagger: bool = False, few_kernels: bool = False) -> BatchedEnv:
    """A batch of `env`, as `VectorEnv(env, stagger, few_kernels)`.

    Of a `TaskMixture` each row is of one task, of an environment of several agents each row is an agent.
    """
    if env.spec.agents:
        return AgentRows(cast(MultiAgentEnv, env), stagger, few_kernels)
    if isinstance(env, TaskMixture):
        return MixtureVectorEnv(env, stagger, few_kernels)
    return VectorEnv(env, stagger, few_kernels)
