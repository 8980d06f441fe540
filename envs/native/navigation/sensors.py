"""The senses of the robot: distances in a ring of directions, with noise."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.native.navigation.room import HALF_WIDTH, ROBOT_RADIUS, Obstacles

RANGE = 5.0  # of the lidar, metres


def directions(rays: int) -> tuple[np.ndarray, np.ndarray]:
    """float32[rays] twice, the x and y of each ray, counterclockwise from half an angle off the x axis."""
    angle = (np.arange(rays) + 0.5) * 2 * math.pi / rays
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def lidar(position: jax.Array, obstacles: Obstacles, rays: int) -> jax.Array:
    """float32[rays], metres from the robot's centre to the nearest wall or obstacle, `RANGE` at most."""
    ray_x, ray_y = directions(rays)
    distance = jnp.minimum(_to_wall(position[0], ray_x), _to_wall(position[1], ray_y))
    distance = jnp.minimum(distance, RANGE)
    # One obstacle after another: vectors of rays instead of a matrix that is then reduced.
    for k in range(obstacles.x.shape[0]):
        dx = obstacles.x[k] - position[0]
        dy = obstacles.y[k] - position[1]
        radius = obstacles.radius[k]
        along = dx * ray_x + dy * ray_y
        # Half the chord squared; below 0 also for a radius of -1, which stands for no obstacle.
        chord = radius * jnp.abs(radius) - (dx * dx + dy * dy - along * along)
        hit = along - jnp.sqrt(jnp.maximum(chord, 0.0))
        distance = jnp.where((chord > 0) & (along > 0), jnp.minimum(distance, hit), distance)
    return jnp.maximum(distance, 0.0)


def log_scale(distance: jax.Array) -> jax.Array:
    """The logarithm of a distance: 0 where the robot touches, 1 at `RANGE`; near things differ the most."""
    return jnp.log(jnp.clip(distance, ROBOT_RADIUS, RANGE) / ROBOT_RADIUS) / math.log(RANGE / ROBOT_RADIUS)


def _to_wall(place: jax.Array, ray: np.ndarray) -> jax.Array:
    inverse = jnp.asarray(1 / np.where(np.abs(ray) < 1e-6, np.float32(1e-6), ray))
    return HALF_WIDTH * jnp.abs(inverse) - place * inverse


def normal_noise(words: jax.Array) -> jax.Array:
    """float32 of the shape of `words`: about normal, mean 0, variance 1, at most 3.5 in magnitude.

    The sum of the four bytes of a random uint32 each: a tenth of the time of an exact sample.
    """
    total = jnp.zeros(words.shape, jnp.int32)
    for shift in (0, 8, 16, 24):
        total = total + ((words >> shift) & 0xFF).astype(jnp.int32)
    return (total - 2 * 255).astype(jnp.float32) / math.sqrt(4 * (256**2 - 1) / 12)
