"""Pendulum without its velocity, and with noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, EnvSpec, JaxEnv, TimeStep
from jaxrl.envs.names import changed_arguments, check_between, check_positive, format_call

# Of Gymnasium's Pendulum; its mass and its length are 1.
_GRAVITY = 10.0
_MAX_SPEED = 8.0
_MAX_TORQUE = 2.0
_TIME_STEP = 0.05
_MIDDLE = 16.2736044 / 2  # of the rewards, without the sign
_LARGEST_NOISE = 100.0


@flax.struct.dataclass
class PendulumState:
    """float32[], the angle from upright; float32[], its speed; int32[], steps so far."""

    angle: jax.Array
    speed: jax.Array
    time: jax.Array


class _Pendulum(JaxEnv):
    """Gymnasium's Pendulum, whose reward r, from -16.27 to 0, is scaled to -1 / T to 1 / T.

    Observation float32[2], cosine and sine of the angle; action float32[1], a torque from -2 to 2. Episodes
    are truncated after T steps.
    """

    def __init__(self, max_episode_length: int = 200):
        self._set_up(dict(locals()), max_episode_length)

    def _set_up(self, given: Mapping[str, Any], limit: int, noise: float = 0.0) -> None:
        """With the arguments of the class."""
        label = f"jaxrl:memory/{type(self).__name__}"
        self._limit = check_positive(f"{label}: max_episode_length", limit)
        self._noise = check_between(f"{label}: noise_sigma", noise, 0, _LARGEST_NOISE)
        self.spec = EnvSpec(
            name=format_call(label, changed_arguments(type(self), given)),
            observation_space=Box.of(-1.0, 1.0, (2,)),
            action_space=Box.of(-_MAX_TORQUE, _MAX_TORQUE, (1,)),
            max_episode_steps=limit,
        )

    def reset(self, key: jax.Array) -> tuple[PendulumState, jax.Array]:
        drawn = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = PendulumState(math.pi * drawn[0], drawn[1], jnp.zeros((), jnp.int32))
        return state, self._observe(key, state)

    def step(self, key: jax.Array, state: PendulumState, action: jax.Array) -> tuple[Any, TimeStep]:
        torque = jnp.clip(action[0], -_MAX_TORQUE, _MAX_TORQUE)
        off = (state.angle + math.pi) % (2 * math.pi) - math.pi
        cost = off**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        turning = 1.5 * _GRAVITY * jnp.sin(state.angle) + 3 * torque
        speed = jnp.clip(state.speed + turning * _TIME_STEP, -_MAX_SPEED, _MAX_SPEED)
        state = PendulumState(state.angle + speed * _TIME_STEP, speed, state.time + 1)
        return state, TimeStep(
            obs=self._observe(key, state),
            reward=(1 - cost / _MIDDLE) / self._limit,
            terminated=jnp.zeros((), bool),
            truncated=state.time >= self._limit,
        )

    def _observe(self, key: jax.Array, state: PendulumState) -> jax.Array:
        seen = jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle)])
        if not self._noise:
            return seen
        # Folded, since `reset` draws the state from the key itself.
        noise = self._noise * jax.random.normal(jax.random.fold_in(key, 1), (2,))
        return jnp.clip(seen + noise, -1.0, 1.0)


class PositionOnlyPendulum(_Pendulum):
    """Pendulum with an observed angle and a hidden speed.

    Args:
      max_episode_length: T.
    """


class NoisyPositionOnlyPendulum(_Pendulum):
    """`PositionOnlyPendulum` with normal noise in observations, clipped to [-1, 1].

    Args:
      noise_sigma: the standard deviation.
      max_episode_length: T.
    """

    def __init__(self, noise_sigma: float = 0.1, max_episode_length: int = 200):
        self._set_up(dict(locals()), max_episode_length, noise_sigma)
