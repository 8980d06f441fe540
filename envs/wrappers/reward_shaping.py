"""`reward_shaping`: a reward to learn from, computed by a function of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from envs import modules
from envs.base import Dict, JaxEnv, TimeStep
from envs.names import check_arguments
from envs.trees import strong_types
from envs.wrappers.wrapper import StatefulWrapper, WrapperState, with_reward


class RewardShaping(StatefulWrapper):
    """Learns from `function(observation, action, reward, next_observation, info)`.

    A pure function of JAX arrays, of one step of one environment; `next_observation` is the true one where an
    episode ends. What is reported of episodes is the environment's reward. Adding
    `gamma * potential(next_observation) - potential(observation)`, with 0 after a termination, does not
    change which policies are best (Ng, Harada and Russell 1999).

    Args:
      env: the environment.
      function: "path.to.module:function".
      arguments: passed on to it by name.
    """

    def __init__(self, env: JaxEnv, function: str, **arguments: Any):
        super().__init__(env)
        shape = modules.load_attribute("wrapper reward_shaping: function", function)
        if not callable(shape) or isinstance(shape, type):
            raise ValueError(f"wrapper reward_shaping: function (={function!r}) must name a function")
        check_arguments(f"function {function}", shape, arguments, skip=5)
        self._shape: Callable[..., Any] = lambda *step: shape(*step, **arguments)
        self._check(function)

    def reset(self, key: jax.Array) -> tuple[WrapperState, Any]:
        state, obs = strong_types(self.env.reset(key))
        return WrapperState(state, obs), obs

    def step(self, key: jax.Array, state: WrapperState, action: jax.Array) -> tuple[WrapperState, TimeStep]:
        env_state, timestep = strong_types(self.env.step(key, state.env, action))
        reward = self.shaped(state.own, action, timestep.reward, timestep.obs, timestep.info)
        return WrapperState(env_state, timestep.obs), with_reward(timestep, reward)

    def shaped(self, obs: Any, action: Any, reward: Any, next_obs: Any, info: dict[str, Any]) -> jax.Array:
        """float32[]: the reward of one step, in arrays of JAX."""
        return jnp.asarray(self._shape(obs, action, reward, next_obs, info), jnp.float32)

    def _check(self, function: str) -> None:
        """Raises ValueError unless the function gives one number; runs nothing."""
        space = self.spec.action_space
        assert not isinstance(space, Dict)

        def reward(key: jax.Array) -> Any:
            state, obs = self.env.reset(key)
            _, timestep = self.env.step(key, state, jnp.zeros(space.shape, space.dtype))
            return self._shape(
                obs, jnp.zeros(space.shape, space.dtype), timestep.reward, timestep.obs, timestep.info
            )

        label = f"wrapper reward_shaping: {function}"
        try:
            found = jax.eval_shape(reward, jax.random.key(0))
        except Exception as error:  # whatever the function does
            raise ValueError(f"{label} raised {modules.one_line(error)}") from error
        if getattr(found, "shape", None) != () or found.dtype == bool:
            raise ValueError(f"{label} returned {found}; return one number, float32[]")
