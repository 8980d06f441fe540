"""`VectorEnv`: a batch of one JaxEnv with same-step automatic reset."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.scatters import without_scatters
from jaxrl.envs.spaces import Discrete, MultiDiscrete, has_choice
from jaxrl.envs.tasks import default_task
from jaxrl.envs.trees import select_rows, strong_types

# An environment may split its key, and `split(key, n)[i]` equals `fold_in(key, i)`: numbers far above
# any `n` keep the keys of resets and staggering distinct from an environment's own.
_RESET = 0x52455345
_STAGGER = 0x53544147
# Of a first episode that is cut off; one more must still be an int32.
_MAX_STAGGER = 2**31 - 2


@flax.struct.dataclass
class VectorState:
    """State of B environments."""

    env: Any  # the environment's own state; every leaf has a leading B
    # int32[B], steps until the first episode is cut off, 0 once it is over; None if not staggered.
    first_episode_left: jax.Array | None = None


class Environments(Protocol):
    """B environments that start anew when an episode has ended, as collectors step them: a `VectorEnv`."""

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def resets_in_rounds(self) -> bool: ...

    @property
    def staggered(self) -> bool: ...

    def reset(self, keys_B: jax.Array, task_B: Any = None) -> tuple[Any, Any]: ...

    def starts(self, keys_B: jax.Array, task_B: Any = None) -> tuple[Any, Any]: ...

    def step(
        self,
        keys_B: jax.Array,
        state: Any,
        action_B: jax.Array,
        starts: tuple[Any, Any] | None = None,
        task_B: Any = None,
    ) -> tuple[Any, TimeStep]: ...

    def select(self, mask_B: jax.Array, on_true: Any, on_false: Any) -> Any: ...

    def action_mask(self, state: Any) -> jax.Array | None: ...

    def solve(self, state: Any) -> jax.Array: ...

    def is_turn(self, state: Any) -> jax.Array | None:
        """bool[B], False if the next action is ignored, as nothing of the agent's is due; None: nowhere.

        Such a row is outside of the row's episodes: one may begin with the row after it.
        """
        ...


class VectorEnv:
    """Steps B copies of `env`; a copy whose episode ends restarts within the same step.

    What happens to environment `b` depends on `keys_B[b]` and `action_B[b]` alone, so that a batch may
    be divided over any number of devices. All keys are typed keys (`jax.random.key`).

    Args:
      env: the environment; every row is a copy of it.
      stagger: cut each environment's first episode off (`truncated`) after a number of steps uniform in
        `[1, spec.max_episode_steps]` (at most 2^31 - 2). Environments with a fixed time limit would
        otherwise end together for ever, and a batch would hold only one phase of the episode. No effect
        without a time limit.
      few_kernels: write small scatters of the environment as selections (`jaxrl.envs.scatters`), for GPUs.

    Attributes:
      spec: of one environment.
      resets_in_rounds: True if a step computes the first states of ended episodes alone, some at a time.
      staggered: True if first episodes are cut off, so that statistics of episodes should skip them.
    """

    def __init__(self, env: JaxEnv, stagger: bool = False, few_kernels: bool = False):
        self.env = env
        self.spec = env.spec
        self.resets_in_rounds = env.spec.reset_ratio > 1
        self._written = without_scatters if few_kernels else lambda function: function
        longest = (env.spec.max_episode_steps or 0) if stagger else 0
        self._first_episode_max = min(longest, _MAX_STAGGER)
        self.staggered = self._first_episode_max > 1

    def reset(self, keys_B: jax.Array, task_B: Any = None) -> tuple[VectorState, Any]:
        """Starts an episode in every environment, by its key; returns `(state, obs_B)`.

        `task_B` are the tasks, leaves [B, ...] of `spec.task_space`; None for the default task.
        """
        env_state, obs_B = self._begin(keys_B, task_B)
        if not self.staggered:
            return VectorState(env_state), obs_B

        def draw(key: jax.Array) -> jax.Array:
            return jax.random.randint(jax.random.fold_in(key, _STAGGER), (), 1, self._first_episode_max + 1)

        return VectorState(env_state, jax.vmap(draw)(keys_B)), obs_B

    def starts(self, keys_B: jax.Array, task_B: Any = None) -> tuple[Any, Any]:
        """`(env_state, obs_B)` of the episodes that `step` with these keys and tasks starts, if any.

        They depend on nothing else, so that they can be computed ahead of the steps.
        """
        return self._begin(jax.vmap(lambda key: jax.random.fold_in(key, _RESET))(keys_B), task_B)

    def _begin(self, keys_B: jax.Array, task_B: Any) -> tuple[Any, Any]:
        if self.spec.task_space is None:
            if task_B is not None:
                raise ValueError(f"{self.spec.name} takes no tasks: its spec has no task_space")
            started = jax.vmap(self._written(self.env.reset))(keys_B)
        else:
            task, axis = (default_task(self.env), None) if task_B is None else (task_B, 0)
            started = jax.vmap(self._written(self.env.reset), in_axes=(0, axis))(keys_B, task)
        return strong_types(started)

    def step(
        self,
        keys_B: jax.Array,
        state: VectorState,
        action_B: jax.Array,
        starts: tuple[Any, Any] | None = None,
        task_B: Any = None,
    ) -> tuple[VectorState, TimeStep]:
        """Advances every environment by one step.

        Where an episode ends, `obs` is the next episode's first observation and `final_obs` the last of
        the one that ended; elsewhere the two are equal.

        Args:
          keys_B: one key per environment.
          state: before the step.
          action_B: as the environment accepts them.
          starts: what `starts` returned for these keys and tasks, to select from. None computes it here, and
            only in the steps in which an episode ends.
          task_B: the tasks of episodes that start in this step, see `reset`; other episodes keep theirs.
        """
        env_state, timestep = strong_types(
            jax.vmap(self._written(self.env.step))(keys_B, state.env, action_B)
        )
        left = state.first_episode_left
        if left is not None:
            timestep = dataclasses.replace(timestep, truncated=timestep.truncated | (left == 1))
            left = jnp.where(timestep.done, 0, jnp.maximum(left - 1, 0))
        final_mask = self._final_mask(VectorState(env_state), timestep.done)
        stepped = env_state, timestep.obs
        if self.resets_in_rounds and starts is None:
            env_state, obs_B = self._reset_in_rounds(keys_B, task_B, timestep.done, stepped)
        elif starts is None:
            env_state, obs_B = self._reset_ended(keys_B, task_B, timestep.done, stepped)
        else:
            env_state, obs_B = select_rows(timestep.done, starts, stepped)
        timestep = dataclasses.replace(timestep, obs=obs_B, final_obs=timestep.obs, final_mask=final_mask)
        return VectorState(env_state, left), timestep

    def select(self, mask_B: jax.Array, on_true: Any, on_false: Any) -> Any:
        """Takes the states of rows where `mask_B` is True from `on_true`, else from `on_false`."""
        return select_rows(mask_B, on_true, on_false)

    def action_mask(self, state: VectorState) -> jax.Array | None:
        """bool[B, A], the actions allowed in `state`; None if the environment has no masks."""
        if not self.spec.has_action_mask:
            return None
        return jax.vmap(self.env.action_mask)(state.env)

    def solve(self, state: VectorState) -> jax.Array:
        """[B, *A], the environment's best actions in `state`; only with `spec.has_solver`."""
        found: jax.Array = jax.vmap(self.env.solve)(state.env)  # type: ignore[attr-defined]
        return found

    def is_turn(self, state: VectorState) -> None:
        """None: every action counts."""

    def _final_mask(self, state: VectorState, done_B: jax.Array) -> jax.Array | None:
        """The masks of states before any reset; after an end no action follows, and some allow none there."""
        mask = self.action_mask(state)
        if mask is None:
            return None
        space = self.spec.action_space
        assert isinstance(space, Discrete | MultiDiscrete)
        ended = done_B.reshape(-1, *[1] * (mask.ndim - 1))
        return mask | (ended & ~has_choice(space, mask)[..., None])

    def _reset_ended(
        self, keys_B: jax.Array, task_B: Any, done_B: jax.Array, stepped: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        """Resets the whole batch if any episode has ended, and keeps the rows of the ended ones."""

        def reset() -> tuple[Any, Any]:
            return select_rows(done_B, self.starts(keys_B, task_B), stepped)

        # One condition for the whole batch: per row it would become a select under vmap, and every step
        # would pay for a reset.
        return jax.lax.cond(jnp.any(done_B), reset, lambda: stepped)

    def _reset_in_rounds(
        self, keys_B: jax.Array, task_B: Any, done_B: jax.Array, stepped: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        """Resets a share of the batch at a time, until all that have ended are reset, with the same keys.

        A loop, which makes no round where nothing ended, and rows that are written in place: the rest of a
        large state is not copied.
        """
        rank_B = jnp.cumsum(done_B, dtype=jnp.int32)
        total = rank_B[-1]
        size = -(-len(done_B) // self.spec.reset_ratio)

        def one_round(loop: tuple[jax.Array, tuple[Any, Any]]) -> tuple[jax.Array, tuple[Any, Any]]:
            first, states = loop
            # The n-th that has ended; a last round that is not full repeats the last, with the same result.
            nth = jnp.minimum(first + jnp.arange(1, size + 1), total)
            row = jnp.searchsorted(rank_B, nth)
            started = self.starts(keys_B[row], jax.tree.map(lambda x: x[row], task_B))
            return first + size, jax.tree.map(lambda x, y: x.at[row].set(y), states, started)

        return jax.lax.while_loop(lambda loop: loop[0] < total, one_round, (jnp.int32(0), stepped))[1]
