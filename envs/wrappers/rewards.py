"""Other rewards to learn from: scaled, clipped or shaped. Episodes are reported as before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import modules
from jaxrl.envs.base import Dict, JaxEnv, TimeStep
from jaxrl.envs.names import check_arguments, check_between
from jaxrl.envs.tasks import default_arguments
from jaxrl.envs.trees import strong_types
from jaxrl.envs.wrappers.wrapper import (
    RewardWrapper,
    StatefulWrapper,
    WrapperState,
    check_number,
    with_reward,
    without_goals,
)

_TERMINATED = "terminated"


class RewardScale(RewardWrapper):
    """Multiplies rewards by `factor`."""

    def __init__(self, env: JaxEnv, factor: float):
        super().__init__(env)
        self._factor = np.float32(check_number("wrapper reward_scale: factor", factor))

    def change(self, reward: Any) -> Any:
        return reward * self._factor


class RewardClip(RewardWrapper):
    """Clips rewards to `[low, high]`."""

    def __init__(self, env: JaxEnv, low: float = -1.0, high: float = 1.0):
        super().__init__(env)
        self._low = np.float32(check_number("wrapper reward_clip: low", low))
        self._high = np.float32(check_number("wrapper reward_clip: high", high))
        if low >= high:
            raise ValueError(f"wrapper reward_clip: low (={low!r}) must be below high (={high!r})")

    def change(self, reward: Any) -> Any:
        return reward.clip(self._low, self._high)


class ShapedReward(StatefulWrapper):
    """A wrapper that learns from a function of a step; reported rewards stay."""

    def __init__(self, env: JaxEnv):
        super().__init__(env)
        self.spec = without_goals(env.spec)

    def compute(
        self, obs: Any, action: Any, reward: Any, next_obs: Any, info: dict[str, Any], terminated: Any
    ) -> Any:
        """The reward of one step of one environment, one number; traced.

        `next_obs` is the true one when an episode ends.
        """
        raise NotImplementedError

    def reset(self, key: jax.Array, *task: Any) -> tuple[WrapperState, Any]:
        state, obs = strong_types(self.env.reset(key, *task))
        return WrapperState(state, obs), obs

    def step(self, key: jax.Array, state: WrapperState, action: jax.Array) -> tuple[WrapperState, TimeStep]:
        env_state, timestep = strong_types(self.env.step(key, state.env, action))
        step = timestep
        reward = self.new_reward(state.own, action, step.reward, step.obs, step.info, step.terminated)
        return WrapperState(env_state, step.obs), with_reward(step, reward)

    def new_reward(
        self, obs: Any, action: Any, reward: Any, next_obs: Any, info: dict[str, Any], terminated: Any
    ) -> jax.Array:
        """float32[]: the reward of one step, in arrays of JAX."""
        return jnp.asarray(self.compute(obs, action, reward, next_obs, info, terminated), jnp.float32)


class RewardShaping(ShapedReward):
    """Learns from `function(observation, action, reward, next_observation, info)`.

    A pure function of JAX arrays, "path.to.module:function", which also gets the `arguments` by name. A
    parameter named `terminated` gets whether the episode reached a terminal state; a truncation is none.
    """

    def __init__(self, env: JaxEnv, function: str, **arguments: Any):
        super().__init__(env)
        self._function = _load("reward_shaping", function)
        self._arguments = arguments
        self._is_told = _TERMINATED in inspect.signature(self._function).parameters
        if self._is_told and _TERMINATED in arguments:
            raise ValueError(
                f"wrapper reward_shaping: {_TERMINATED} of {function} is what the environment says, and no "
                "argument: call the parameter otherwise"
            )
        told = {_TERMINATED: False} if self._is_told else {}
        check_arguments(f"function {function}", self._function, arguments | told, skip=5)
        _check_one_number("reward_shaping", function, self)

    def compute(
        self, obs: Any, action: Any, reward: Any, next_obs: Any, info: dict[str, Any], terminated: Any
    ) -> Any:
        told = {_TERMINATED: terminated} if self._is_told else {}
        return self._function(obs, action, reward, next_obs, info, **told, **self._arguments)


class PotentialShaping(ShapedReward):
    """Adds `gamma * potential(next observation) - potential(observation)`, the former 0 after a termination.

    Ng, Harada and Russell 1999, "Policy invariance under reward transformations": which policies are best
    does not change, if `gamma` is the learner's.

    Args:
      env: the environment.
      function: "path.to.module:function", called with one observation, a pure function of JAX arrays.
      gamma: the discount that the learner has.
      arguments: passed on to the function by name.
    """

    def __init__(self, env: JaxEnv, function: str, gamma: float, **arguments: Any):
        super().__init__(env)
        self._function = _load("potential_shaping", function)
        self._arguments = arguments
        self._gamma = check_between("wrapper potential_shaping: gamma", gamma, 0, 1)
        check_arguments(f"function {function}", self._function, arguments, skip=1)
        _check_one_number("potential_shaping", function, self)

    def compute(
        self, obs: Any, action: Any, reward: Any, next_obs: Any, info: dict[str, Any], terminated: Any
    ) -> Any:
        after = jnp.where(terminated, 0.0, self._potential(next_obs))
        return reward + self._gamma * after - self._potential(obs)

    def _potential(self, obs: Any) -> jax.Array:
        return jnp.asarray(self._function(obs, **self._arguments), jnp.float32)


def _load(wrapper: str, function: str) -> Callable[..., Any]:
    found = modules.load_attribute(f"wrapper {wrapper}: function", function)
    if not callable(found) or isinstance(found, type):
        raise ValueError(f"wrapper {wrapper}: function (={function!r}) must name a function")
    return found


def _check_one_number(name: str, function: str, wrapper: ShapedReward) -> None:
    env = wrapper.env
    space = wrapper.spec.action_space
    assert not isinstance(space, Dict)

    def reward(key: jax.Array) -> Any:
        state, obs = env.reset(key, *default_arguments(env))
        action = jnp.zeros(space.shape, space.dtype)
        _, step = env.step(key, state, action)
        # Of the types that steps have.
        said = strong_types((obs, action, step.reward, step.obs, step.info, step.terminated))
        return wrapper.compute(*said)

    label = f"wrapper {name}: {function}"
    try:
        found = jax.eval_shape(reward, jax.random.key(0))
    except Exception as error:  # whatever the function does
        raise ValueError(f"{label} raised {modules.one_line(error)}") from error
    if getattr(found, "shape", None) != () or found.dtype == bool:
        raise ValueError(f"{label} returned {found}; return one number, float32[]")
