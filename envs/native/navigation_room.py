"""The room, how an episode is laid out, how its bodies move, and what the robot senses.

Lengths are metres, times seconds. Each function is of one room, in plain arithmetic without loops, conditions
or rejected samples: a batch of them is as fast as its vectors.
"""

from __future__ import annotations

import dataclasses
import math

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

HALF_WIDTH = 5.0  # of the room; its centre is the origin
ROBOT_RADIUS = 0.25
GOAL_RADIUS = 0.5
MAX_SPEED = 2.0
TIME_STEP = 0.1
# Farther than any two places of the room.
LARGEST_DISTANCE = 15.0
MAX_OBSTACLE_SPEED = 2.0
MAX_NOISE = 5.0

_DRAG = 2.0  # per second
_RADII = (0.25, 0.5)  # of obstacles
_REACH = HALF_WIDTH - ROBOT_RADIUS  # how far from the centre the robot's can be
_START_REACH = _REACH - 0.25
_LEAST_DISTANCE = 1.0
_CLEARANCE = 0.5  # between the robot and an obstacle at the start
_DRAWS = 3  # of a place for each obstacle
RANGE = 5.0  # of the lidar, metres


@flax.struct.dataclass
class NavigationParams:
    """The difficulty of a room; a task of `jaxrl:Navigation` is a dict of these fields."""

    obstacles: jax.Array  # int32[], how many there are; the environment's `max_obstacles` at most
    moving: jax.Array  # int32[], how many of them move
    obstacle_speed: jax.Array  # float32[], of the moving ones, metres per second; from 0 to 2
    goal_distance: jax.Array  # float32[], the greatest distance between start and goal, metres; at least 1
    # float32[], standard deviation of a lidar's distance, metres, and of a component of the velocity, m/s.
    sensor_noise: jax.Array


@flax.struct.dataclass
class Obstacles:
    """K discs; float32[K] each."""

    x: jax.Array  # of centres
    y: jax.Array
    direction_x: jax.Array  # of where they move to, of length 1; 0 if they stand
    direction_y: jax.Array
    radius: jax.Array  # -1 if there is no obstacle


@flax.struct.dataclass
class NavigationState:
    """A room in the middle of an episode."""

    params: NavigationParams  # from the task of the episode
    position: jax.Array  # float32[2] of the robot, as velocity
    velocity: jax.Array
    goal: jax.Array  # float32[2]
    obstacles: Obstacles
    time: jax.Array  # int32[], steps so far


def words_of_layout(max_obstacles: int) -> int:
    return 2 + max_obstacles * (_DRAWS + 1)


def lay_out(words: jax.Array, params: NavigationParams, max_obstacles: int) -> NavigationState:
    """Places the robot, the goal and the obstacles.

    An obstacle takes the first of three random places that is clear of start and goal; where none is, which
    is rare, it is left out. Obstacles may overlap one another. Of uint32[words_of_layout(max_obstacles)].
    """
    start, end = (_place(words[i], _START_REACH) for i in (0, 1))
    goal = _goal(start, end, params.goal_distance)
    drawn = [words[2 + i * max_obstacles :][:max_obstacles] for i in range(_DRAWS + 1)]
    turn, size = _halves(drawn.pop())
    radius = _RADII[0] + (_RADII[1] - _RADII[0]) * size
    x = jnp.zeros(max_obstacles)
    y = jnp.zeros(max_obstacles)
    present = jnp.full(max_obstacles, -1.0)
    # The first sample comes last and wins. Numbers instead of bools, which compilers turn into branches.
    for place in reversed(drawn):
        new_x, new_y = ((2 * half - 1) * (HALF_WIDTH - _RADII[1]) for half in _halves(place))
        gap = jnp.minimum(
            _gap(new_x, new_y, start, radius + ROBOT_RADIUS + _CLEARANCE),
            _gap(new_x, new_y, goal, radius + GOAL_RADIUS),
        )
        x = jnp.where(gap > 0, new_x, x)
        y = jnp.where(gap > 0, new_y, y)
        present = jnp.maximum(gap, present)
    index = jnp.arange(max_obstacles)
    moves = (index < params.moving).astype(jnp.float32)
    return NavigationState(
        params=params,
        position=start,
        velocity=jnp.zeros(2),
        goal=goal,
        obstacles=Obstacles(
            x=x,
            y=y,
            direction_x=moves * jnp.cos(2 * math.pi * turn),
            direction_y=moves * jnp.sin(2 * math.pi * turn),
            radius=jnp.where((present > 0) & (index < params.obstacles), radius, -1.0),
        ),
        time=jnp.zeros((), jnp.int32),
    )


def _goal(start: jax.Array, drawn: jax.Array, largest: jax.Array) -> jax.Array:
    """A sampled place that is neither too near to the start nor too far from it."""
    too_near = _length(drawn - start) < _LEAST_DISTANCE
    # Half a room away in both directions, towards the other side.
    drawn = jnp.where(too_near, drawn - jnp.where(drawn > 0, _START_REACH, -_START_REACH), drawn)
    offset = drawn - start
    return start + offset * jnp.minimum(1.0, jnp.maximum(largest, _LEAST_DISTANCE) / _length(offset))


def move_obstacles(obstacles: Obstacles, speed: jax.Array) -> Obstacles:
    """Moves them for one step; walls turn them back."""
    x, direction_x = _bounce(obstacles.x, obstacles.direction_x, obstacles.radius, speed)
    y, direction_y = _bounce(obstacles.y, obstacles.direction_y, obstacles.radius, speed)
    return dataclasses.replace(obstacles, x=x, y=y, direction_x=direction_x, direction_y=direction_y)


def _bounce(
    place: jax.Array, direction: jax.Array, radius: jax.Array, speed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    place = place + TIME_STEP * speed * direction
    reach = HALF_WIDTH - radius
    inward = jnp.where(place > reach, -jnp.abs(direction), jnp.abs(direction))
    return jnp.clip(place, -reach, reach), jnp.where(jnp.abs(place) > reach, inward, direction)


def drive(state: NavigationState, push: jax.Array, obstacles: Obstacles) -> tuple[jax.Array, ...]:
    """(position float32[2], velocity float32[2], whether the robot touched something bool[]) after a step.

    "Something" is a wall or an obstacle. It is moved out of whatever it runs into. `push` is float32[2], of
    length 1 at most; `state` is before the step, `obstacles` are after it.
    """
    velocity = state.velocity + TIME_STEP * _DRAG * (MAX_SPEED * push - state.velocity)
    wished = state.position + TIME_STEP * velocity
    position = jnp.clip(wished, -_REACH, _REACH)
    touches_wall = (position != wished).any()
    dx = position[0] - obstacles.x
    dy = position[1] - obstacles.y
    distance = jnp.sqrt(dx * dx + dy * dy + 1e-12)
    # Of an obstacle that is not there, the radius is negative and so is this.
    overlap = jnp.maximum(obstacles.radius + ROBOT_RADIUS - distance, 0.0)
    touches_obstacle = (overlap > 0).any()
    away = jnp.stack([(overlap * dx / distance).sum(), (overlap * dy / distance).sum()])
    position = jnp.clip(position + away, -_REACH, _REACH)
    touches = touches_wall | touches_obstacle
    return position, jnp.where(touches, 0.0, velocity), touches


def _place(word: jax.Array, reach: float) -> jax.Array:
    x, y = _halves(word)
    return (2 * jnp.stack([x, y]) - 1) * reach


def _halves(word: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two float32 in [0, 1) of each random word, of 16 bits each: a tenth of a millimetre of this room."""
    # By way of int32, which processors convert in one instruction.
    high, low = (x.astype(jnp.int32).astype(jnp.float32) / 2**16 for x in (word >> 16, word & 0xFFFF))
    return high, low


def _gap(x: jax.Array, y: jax.Array, place: jax.Array, distance: jax.Array) -> jax.Array:
    """Above 0 where (x, y) is farther from the place than the distance."""
    return (x - place[0]) ** 2 + (y - place[1]) ** 2 - distance**2


def _length(vector: jax.Array) -> jax.Array:
    return jnp.sqrt((vector * vector).sum())


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
