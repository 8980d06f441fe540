"""`MixtureVectorEnv`: a batch of several tasks, each row of one of them for good."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.agents import AgentRows, MultiAgentEnv
from jaxrl.envs.base import EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.mixture import TaskMixture
from jaxrl.envs.trees import select_rows
from jaxrl.envs.vector import VectorEnv


class MixtureVectorEnv:
    """Steps a batch in which row `b` has the task `pattern[b % P]`, and computes no other for it.

    As `VectorEnv`, whose methods it has: what happens to a row depends on its key and action alone, and is
    what happens to it in a batch of its task alone. Its state is a tuple of the states of the tasks' rows. On
    several devices each must hold a multiple of P rows, so that a row's task follows from its global index.

    Args:
      env: the tasks.
      stagger: see `VectorEnv`.
    """

    def __init__(self, env: TaskMixture, stagger: bool = False):
        self.env = env
        self._played = sorted(set(env.pattern.tolist()))
        self._parts = tuple(VectorEnv(env.tasks[i], stagger) for i in self._played)

    @property
    def spec(self) -> EnvSpec:
        """The spec of one environment."""
        return self.env.spec

    @property
    def resets_in_rounds(self) -> bool:
        """True if one of the tasks does."""
        return any(part.resets_in_rounds for part in self._parts)

    @property
    def staggered(self) -> bool:
        """True if first episodes of a task are cut off."""
        return any(part.staggered for part in self._parts)

    def rows(self, count: int) -> list[np.ndarray]:
        """The rows of each task, of `count` in all."""
        tasks = np.resize(self.env.pattern, count)
        return [np.flatnonzero(tasks == i) for i in self._played]

    def reset(self, keys_B: jax.Array, task_B: Any = None) -> tuple[Any, Any]:
        """See `VectorEnv.reset`."""
        states, obs = zip(
            *[part.reset(keys_B[rows]) for part, rows in self._of(len(keys_B), task_B)], strict=True
        )
        return states, self._joined(len(keys_B), obs)

    def starts(self, keys_B: jax.Array, task_B: Any = None) -> Any:
        """See `VectorEnv.starts`; a tuple, of each task's rows."""
        return tuple(part.starts(keys_B[rows]) for part, rows in self._of(len(keys_B), task_B))

    def step(
        self,
        keys_B: jax.Array,
        state: Any,
        action_B: jax.Array,
        starts: Any = None,
        conditional: bool = True,
        task_B: Any = None,
    ) -> tuple[Any, TimeStep]:
        """See `VectorEnv.step`."""
        count = len(keys_B)
        states, timesteps = [], []
        for i, (part, rows) in enumerate(self._of(count, task_B)):
            own = None if starts is None else starts[i]
            after, timestep = part.step(keys_B[rows], state[i], action_B[rows], own, conditional)
            states.append(after)
            timesteps.append(timestep)
        joined: TimeStep = self._joined(count, timesteps)
        return tuple(states), joined

    def action_mask(self, state: Any) -> jax.Array | None:
        """See `VectorEnv.action_mask`."""
        if not self.spec.has_action_mask:
            return None
        masks = [part.action_mask(own) for part, own in zip(self._parts, state, strict=True)]
        joined: jax.Array = self._joined(sum(len(mask) for mask in masks if mask is not None), masks)
        return joined

    def solve(self, state: Any) -> jax.Array:
        """None has a solver: `spec.has_solver` is False."""
        raise NotImplementedError

    def is_turn(self, state: Any) -> None:
        """See `VectorEnv.is_turn`."""

    def select(self, mask_B: jax.Array, on_true: Any, on_false: Any) -> Any:
        """See `VectorEnv.select`."""
        rows = self.rows(len(mask_B))
        triples = zip(rows, on_true, on_false, strict=True)
        return tuple(select_rows(mask_B[own], x, y) for own, x, y in triples)

    def _of(self, count: int, task_B: Any) -> list[tuple[VectorEnv, np.ndarray]]:
        if task_B is not None:
            raise ValueError(f"{self.spec.name} takes no tasks: its rows have theirs for good")
        return list(zip(self._parts, self.rows(count), strict=True))

    def _joined(self, count: int, parts: Any) -> Any:
        """The rows of all tasks in their order, of trees of each task's rows."""
        order = np.argsort(np.concatenate(self.rows(count)))
        return jax.tree.map(lambda *xs: jnp.concatenate(xs)[order], *parts)


BatchedEnv = VectorEnv | MixtureVectorEnv | AgentRows


def vector_env(env: JaxEnv, stagger: bool = False) -> BatchedEnv:
    """A batch of `env`, as `VectorEnv(env, stagger)`.

    Of a `TaskMixture` each row is of one task, of an environment of several agents each row is an agent.
    """
    if env.spec.agents:
        return AgentRows(cast(MultiAgentEnv, env), stagger)
    return MixtureVectorEnv(env, stagger) if isinstance(env, TaskMixture) else VectorEnv(env, stagger)
