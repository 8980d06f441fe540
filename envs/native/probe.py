"""Probe environments: each isolates one part of a learner, so that a failure names the bug.

The idea is Andy Jones's ("Debugging RL, without the agonizing pain"): start where nothing but the value
loss can be wrong, and add one thing at a time. The answer of every probe is known exactly and is in
its docstring.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, EnvSpec, JaxEnv, Space, TimeStep

SIGN = Box.of(-1.0, 1.0, (1,))


def probe_step(obs: Any, reward: Any, terminated: Any = False, truncated: Any = False) -> TimeStep:
    """A `TimeStep` whose scalars may be Python numbers."""
    return TimeStep(
        obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(terminated, bool),
        truncated=jnp.asarray(truncated, bool),
    )


def random_sign(key: jax.Array) -> jax.Array:
    """float32[1]: -1 or 1, equally likely."""
    return jax.random.rademacher(key, (1,), jnp.float32)


class OneStepProbe(JaxEnv):
    """Episodes of a single step that always terminate; the state is the observation."""

    observation_space: Space = SIGN
    action_space: Space

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name=f"jaxrl:{type(self).__name__}",
            observation_space=self.observation_space,
            action_space=self.action_space,
            max_episode_steps=1,
        )

    def first_observation(self, key: jax.Array) -> Any:
        """Samples the episode's only observation."""
        return random_sign(key)

    def reward(self, obs: Any, action: jax.Array) -> jax.Array | float:
        """The reward of `action` at `obs`."""
        raise NotImplementedError

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        obs = self.first_observation(key)
        return obs, obs

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, TimeStep]:
        return state, probe_step(state, self.reward(state, action), terminated=True)
