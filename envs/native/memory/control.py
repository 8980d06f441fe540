"""CartPole and Pendulum with only positions or velocities observed, also with noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, Space, TimeStep
from jaxrl.envs.names import changed_call, check_between, check_positive

_LARGEST_NOISE = 100.0
# Of Gymnasium's CartPole (Barto, Sutton and Anderson 1983): metres, kilograms, seconds.
_GRAVITY = 9.8
_CART = 1.0
_POLE = 0.1
_HALF_LENGTH = 0.5
_FORCE = 10.0
_TIME_STEP = 0.02
_FARTHEST = 2.4
_LARGEST_ANGLE = 12 * 2 * math.pi / 360
_START = 0.05  # the largest of each component at the start
_POSITIONS = np.array([0, 2])
_VELOCITIES = np.array([1, 3])
# Of Gymnasium's Pendulum; its mass and its length are 1.
_PENDULUM_GRAVITY = 10.0
_PENDULUM_TIME_STEP = 0.05
_MAX_SPEED = 8.0
_MAX_TORQUE = 2.0
_MIDDLE = 16.2736044 / 2  # of the rewards, without the sign


class _Control(JaxEnv):
    """A task of Gymnasium's truncated after T = `max_episode_length` steps, with two numbers in view."""

    _bounds: tuple[float, float]  # of what is seen, without the sign
    _actions: Space

    def __init__(self, max_episode_length: int = 200):
        self._set_up(dict(locals()), max_episode_length)

    def _set_up(self, given: Mapping[str, Any], limit: int, noise: float = 0.0) -> None:
        label = f"jaxrl:memory/{type(self).__name__}"
        self._limit = check_positive(f"{label}: max_episode_length", limit)
        self._noise = check_between(f"{label}: noise_sigma", noise, 0, _LARGEST_NOISE)
        self.spec = EnvSpec(
            name=changed_call(label, type(self), given),
            observation_space=Box.of([-x for x in self._bounds], self._bounds, (2,)),
            action_space=self._actions,
            max_episode_steps=limit,
        )

    def _noisy(self, key: jax.Array, seen: jax.Array) -> jax.Array:
        if not self._noise:
            return seen
        # Folded, since `reset` samples the state with the key itself.
        noise = self._noise * jax.random.normal(jax.random.fold_in(key, 1), (2,))
        farthest = jnp.asarray(self._bounds, jnp.float32)
        return jnp.clip(seen + noise, -farthest, farthest)


@flax.struct.dataclass
class CartPoleState:
    """float32[4]: place, speed, angle and its speed; int32[], steps so far."""

    body: jax.Array
    time: jax.Array


class _CartPole(_Control):
    """Gymnasium's CartPole; actions 0 and 1 push left and right.

    Each step has a reward of 1 / T, the last one included. The episode terminates when the cart is 2.4 m from
    the middle or the pole 12 degrees from upright, and is truncated after T steps.
    """

    _seen = _POSITIONS  # components of the body
    _bounds = (2 * _FARTHEST, 2 * _LARGEST_ANGLE)
    _actions = Discrete(2)

    def reset(self, key: jax.Array) -> tuple[CartPoleState, jax.Array]:
        body = jax.random.uniform(key, (4,), jnp.float32, -_START, _START)
        state = CartPoleState(body, jnp.zeros((), jnp.int32))
        return state, self._noisy(key, body[_POSITIONS])

    def step(self, key: jax.Array, state: CartPoleState, action: jax.Array) -> tuple[Any, TimeStep]:
        body = _push(state.body, action)
        time = state.time + 1
        fallen = (jnp.abs(body[0]) > _FARTHEST) | (jnp.abs(body[2]) > _LARGEST_ANGLE)
        return CartPoleState(body, time), TimeStep(
            obs=self._noisy(key, body[self._seen]),
            reward=jnp.full((), 1 / self._limit, jnp.float32),
            terminated=fallen,
            truncated=time >= self._limit,
        )


class PositionOnlyCartPole(_CartPole):
    """CartPole with observed position and angle: float32[2]. The best return is 1."""


class NoisyPositionOnlyCartPole(_CartPole):
    """`PositionOnlyCartPole` with normal noise in observations, clipped to the bounds of the space.

    Args:
      noise_sigma: the standard deviation, the same for the place (m) and the angle (radians).
      max_episode_length: T.
    """

    def __init__(self, noise_sigma: float = 0.1, max_episode_length: int = 200):
        self._set_up(dict(locals()), max_episode_length, noise_sigma)


class VelocityOnlyCartPole(_CartPole):
    """CartPole with its two velocities observed: float32[2]. The best return is 1.

    The first observation of an episode is of the place and the angle instead, as in POPGym: a policy with
    memory can add up the rest.
    """

    _seen = _VELOCITIES
    _bounds = (math.inf, math.inf)


def _push(body: jax.Array, action: jax.Array) -> jax.Array:
    """The body one time step later, by Euler's method."""
    _, speed, angle, turn = body
    force = jnp.where(action == 1, _FORCE, -_FORCE)
    sine = jnp.sin(angle)
    cosine = jnp.cos(angle)
    mass = _CART + _POLE
    pushed = (force + _POLE * _HALF_LENGTH * turn**2 * sine) / mass
    inertia = _HALF_LENGTH * (4 / 3 - _POLE * cosine**2 / mass)
    turning = (_GRAVITY * sine - cosine * pushed) / inertia
    speeding = pushed - _POLE * _HALF_LENGTH * turning * cosine / mass
    return body + _TIME_STEP * jnp.stack([speed, speeding, turn, turning])


@flax.struct.dataclass
class PendulumState:
    """float32[], the angle from upright; float32[], its speed; int32[], steps so far."""

    angle: jax.Array
    speed: jax.Array
    time: jax.Array


class _Pendulum(_Control):
    """Gymnasium's Pendulum, whose reward r, from -16.27 to 0, is scaled to -1 / T to 1 / T.

    Observation float32[2], cosine and sine of the angle; action float32[1], a torque from -2 to 2. Episodes
    are truncated after T steps.
    """

    _bounds = (1.0, 1.0)
    _actions = Box.of(-_MAX_TORQUE, _MAX_TORQUE, (1,))

    def reset(self, key: jax.Array) -> tuple[PendulumState, jax.Array]:
        drawn = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        state = PendulumState(math.pi * drawn[0], drawn[1], jnp.zeros((), jnp.int32))
        return state, self._observe(key, state)

    def step(self, key: jax.Array, state: PendulumState, action: jax.Array) -> tuple[Any, TimeStep]:
        torque = jnp.clip(action[0], -_MAX_TORQUE, _MAX_TORQUE)
        off = (state.angle + math.pi) % (2 * math.pi) - math.pi
        cost = off**2 + 0.1 * state.speed**2 + 0.001 * torque**2
        turning = 1.5 * _PENDULUM_GRAVITY * jnp.sin(state.angle) + 3 * torque
        speed = jnp.clip(state.speed + turning * _PENDULUM_TIME_STEP, -_MAX_SPEED, _MAX_SPEED)
        state = PendulumState(state.angle + speed * _PENDULUM_TIME_STEP, speed, state.time + 1)
        return state, TimeStep(
            obs=self._observe(key, state),
            reward=(1 - cost / _MIDDLE) / self._limit,
            terminated=jnp.zeros((), bool),
            truncated=state.time >= self._limit,
        )

    def _observe(self, key: jax.Array, state: PendulumState) -> jax.Array:
        return self._noisy(key, jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle)]))


class PositionOnlyPendulum(_Pendulum):
    """Pendulum whose angle is observed and its speed is not."""


class NoisyPositionOnlyPendulum(_Pendulum):
    """`PositionOnlyPendulum` with normal noise in observations, clipped to [-1, 1].

    Args:
      noise_sigma: the standard deviation.
      max_episode_length: T.
    """

    def __init__(self, noise_sigma: float = 0.1, max_episode_length: int = 200):
        self._set_up(dict(locals()), max_episode_length, noise_sigma)
