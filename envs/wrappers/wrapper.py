"""Base classes of wrappers, and the checks of arguments that they share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import tasks
from jaxrl.envs.base import Box, EnvSpec, JaxEnv, Space, TimeStep
from jaxrl.envs.mixture import TaskMixture
from jaxrl.envs.pictures import CannotRender, picture_order


class Wrapper(JaxEnv):
    """Passes everything on to `env`; subclasses change some of it and adjust `spec`.

    Attributes:
      for_agents: True if it also wraps environments of several agents (`jaxrl.envs.agents`).
    """

    for_agents: ClassVar[bool] = False

    def __init__(self, env: JaxEnv):
        self.env = env
        self.spec = env.spec

    # What the environment has of tasks, see `jaxrl.envs.tasks`.
    default_task = property(lambda self: tasks.default_task(self.env))
    task_groups = property(lambda self: tasks.task_groups(self.env))
    task_scales = property(lambda self: tasks.task_scales(self.env))
    named_tasks = property(lambda self: tasks.named_tasks(self.env))
    level_pool = property(lambda self: tasks.level_pool(self.env))
    draw_task = property(lambda self: tasks.method_of_tasks(self.env, "draw_task"))
    mutate = property(lambda self: tasks.method_of_tasks(self.env, "mutate"))
    is_solvable = property(lambda self: tasks.method_of_tasks(self.env, "is_solvable"))

    def reset(self, key: jax.Array, *task: Any) -> tuple[Any, Any]:
        return self.env.reset(key, *task)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        return self.env.step(key, state, action)

    def action_mask(self, state: Any) -> jax.Array:
        return self.env.action_mask(self.inner(state))

    def present(self, state: Any) -> jax.Array:
        """bool[A], see `jaxrl.envs.agents.MultiAgentEnv`."""
        return self.env.present(self.inner(state))  # type: ignore[attr-defined]

    def central(self, state: Any) -> Any:
        """The global state; only with `spec.central_observation`."""
        return self.env.central(self.inner(state))  # type: ignore[attr-defined]

    def solve(self, state: Any) -> jax.Array:
        """The environment's best action; only with `spec.has_solver`."""
        return self.env.solve(self.inner(state))  # type: ignore[attr-defined]

    def inner(self, state: Any) -> Any:
        """The wrapped environment's part of `state`; overridden by wrappers that keep their own."""
        return state

    def render(self, state: Any) -> np.ndarray:
        """A picture, uint8[height, width, 3], if the environment has a `render`; else CannotRender."""
        if not hasattr(self.env, "render"):
            raise CannotRender(f"{self.spec.name} cannot be rendered: it has no `render`")
        return self.env.render(self.inner(state))


def wrapped(env: JaxEnv, wrapper: Callable[[JaxEnv], JaxEnv]) -> JaxEnv:
    """`wrapper(env)`; of a `TaskMixture` each task is wrapped, beneath its padding."""
    return env.wrap_tasks(wrapper) if isinstance(env, TaskMixture) else wrapper(env)


@flax.struct.dataclass
class WrapperState:
    """The wrapped environment's state, and what the wrapper itself keeps."""

    env: Any
    own: Any


class StatefulWrapper(Wrapper):
    """A wrapper whose state is a `WrapperState`."""

    def inner(self, state: WrapperState) -> Any:
        return state.env


class UnknownStack(Wrapper):
    """Around a wrapper of the user's own: its observations may no longer be a stack of frames."""

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        self.spec = dataclasses.replace(env.spec, stacked_frames=1)


class RewardWrapper(Wrapper):
    """Replaces every reward by a function of it, `change`; reported rewards stay."""

    for_agents = True

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        self.spec = without_goals(env.spec)

    def change(self, reward: Any) -> Any:
        """Returns the new reward, float32, of an array of JAX or numpy of any shape."""
        raise NotImplementedError

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        return state, with_reward(timestep, self.change(timestep.reward))


def without_goals(spec: EnvSpec) -> EnvSpec:
    """The spec of a wrapper that changes rewards or observations, so that `goals` no longer holds."""
    return dataclasses.replace(spec, goals=None, goal_examples=None)


def with_reward(timestep: TimeStep, reward: jax.Array) -> TimeStep:
    """The step with another reward to learn from, and the reward that is reported as it was."""
    return dataclasses.replace(timestep, reward=reward, score=timestep.reported_reward)


class ObservedSteps(Wrapper):
    """Replaces every observation by `see`, which knows the step that led to it."""

    def see(self, obs: Any, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> Any:
        """The new observation, by what led to it.

        `key` is of the reset or the step, `state` after it; after a reset, `action` is None and `reward` 0.
        """
        raise NotImplementedError

    def reset(self, key: jax.Array, *task: Any) -> tuple[Any, Any]:
        state, obs = self.env.reset(key, *task)
        return state, self.see(obs, key, state, None, jnp.zeros((), jnp.float32))

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(key, state, action)
        obs = self.see(timestep.obs, key, state, action, timestep.reward)
        return state, dataclasses.replace(timestep, obs=obs)


class ObservationWrapper(ObservedSteps):
    """Replaces every observation by a function of it, `observe`."""

    for_agents = True

    def __init__(self, env: JaxEnv, observation_space: Space):
        super().__init__(env)
        spec = without_goals(env.spec)
        self.spec = dataclasses.replace(spec, observation_space=observation_space, stacked_frames=1)

    def observe(self, obs: Any) -> jax.Array:
        """Returns the new observation, an element of `spec.observation_space`."""
        raise NotImplementedError

    def see(self, obs: Any, key: jax.Array, state: Any, action: Any, reward: jax.Array) -> Any:
        """The observation of one agent, or of each of several."""
        return jax.vmap(self.observe)(obs) if self.spec.agents else self.observe(obs)


def require_box(wrapper: str, env: JaxEnv, ndim: int | None = None) -> Box:
    """Returns the observation space of `env` if it is a Box (of `ndim` dimensions); ValueError otherwise."""
    space = env.spec.observation_space
    if not isinstance(space, Box) or (ndim is not None and len(space.shape) != ndim):
        dimensions = "" if ndim is None else f" of {ndim} dimension(s)"
        raise ValueError(
            f"wrapper {wrapper} needs a Box observation{dimensions}; {env.spec.name} has {describe(space)}"
        )
    return space


def require_channels_last(wrapper: str, env: JaxEnv) -> None:
    """Raises ValueError if observations are pictures with channels or frames first."""
    space = env.spec.observation_space
    if isinstance(space, Box) and picture_order(space.shape) not in ((), (0, 1, 2)):
        raise ValueError(
            f"wrapper {wrapper} works on the last axis; {env.spec.name} has pictures {list(space.shape)} "
            "with channels or frames first: do it in the environment"
        )


def check_indices(wrapper: str, indices: object, size: int) -> None:
    """Raises ValueError unless `indices` names components of a vector of `size`, at least one."""
    given = indices if isinstance(indices, tuple | list) else ()
    if not given or any(not isinstance(i, int) or isinstance(i, bool) or not 0 <= i < size for i in given):
        rule = f"must be integers in [0, {size}), at least one"
        raise ValueError(f"wrapper {wrapper}: indices (={indices!r}) {rule}")


def check_number(label: str, value: object) -> float:
    """Returns `value` if it is a finite number; ValueError, which begins with `label`, otherwise."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{label} (={value!r}) must be a finite number")
    return float(value)


def describe(space: Space) -> str:
    """A short text for error messages; a Box without its many bounds."""
    return f"Box of shape {space.shape}" if isinstance(space, Box) else str(space)
