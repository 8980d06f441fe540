"""`jaxrl:Navigation`: spaces, rewards and ends of episodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import names
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, Space, TimeStep
from jaxrl.envs.goals import ACHIEVED, DESIRED, OBSERVATION, RewardOfGoals, goal_distance
from jaxrl.envs.native import navigation_room as rooms
from jaxrl.envs.native.navigation_room import NavigationParams, NavigationState
from jaxrl.envs.native.random_words import hashed, random_words
from jaxrl.envs.tasks import TaskScale

_NAME = "jaxrl:Navigation"
_MOST_OBSTACLES = 64
_MOST_RAYS = 256
_TASK = ("obstacles", "moving", "obstacle_speed", "goal_distance", "sensor_noise")  # and a room
_ANY_ROOM = -1  # of a task
_MOST_ROOMS = 2**24  # a float, which bounds of spaces are, tells these apart
_NEAR = 3.0  # metres to the goal at difficulty 0
_SPEED_BOUND = 1.5  # of a measured velocity, over the fastest; noise is clipped there
# Standing still, and the eight directions.
_PUSHES = np.array(
    [(0.0, 0.0)] + [(math.cos(i * math.pi / 4), math.sin(i * math.pi / 4)) for i in range(8)], np.float32
)
# Of pictures: pixels of a side and of the wall, colours.
_SIDE = 240
_WALL = 4
_FLOOR = (246, 244, 239)
_EDGE = (60, 64, 72)
_RAY = (214, 222, 236)
_GOAL = (122, 196, 122)
_STANDS = (128, 132, 140)
_MOVES = (230, 140, 60)
_ROBOT = (40, 90, 200)
_POINTS_PER_RAY = 160


def _dense(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    return -goal_distance(achieved, desired)


def _sparse(achieved: jax.Array, desired: jax.Array) -> jax.Array:
    return 2 * (goal_distance(achieved, desired) < rooms.GOAL_RADIUS).astype(jnp.float32) - 1


class Navigation(JaxEnv):
    """A robot drives to a goal in a room with standing and moving obstacles; docs/navigation.md.

    Args:
      control: "continuous", a push float32[2] of length 1 at most; "discrete", none or one of 8 directions.
      goal_conditioned: observations are dicts of `observation`, `achieved_goal` and `desired_goal`, and
        neither the goal nor a collision ends an episode.
      reward: "progress", "sparse" or "dense"; "auto" is sparse with `goal_conditioned`, else progress.
      lidar_rays: how many directions the lidar measures.
      max_obstacles: the most that `obstacles` of a task can be.
      max_steps: an episode is truncated after so many.
      obstacles, moving, obstacle_speed, goal_distance, sensor_noise: the default task. A task is a dict of
        these names, see `NavigationParams`, and may have a `room`: that number decides start, goal and
        obstacles, always the same; -1, the default, samples them.

    Attributes:
      compute_reward, compute_terminated: the sparse or dense reward float32[...] and end (False) bool[...] of
        places [..., 2], achieved and desired; also of goals chosen afterwards.
    """

    def __init__(
        self,
        control: str = "continuous",
        goal_conditioned: bool = False,
        reward: str = "auto",
        lidar_rays: int = 24,
        max_obstacles: int = 8,
        max_steps: int = 200,
        obstacles: int = 8,
        moving: int = 4,
        obstacle_speed: float = 0.5,
        goal_distance: float = rooms.LARGEST_DISTANCE,
        sensor_noise: float = 0.02,
    ):
        label = f"{_NAME}: "
        names.check_choice(f"{label}control", control, ("continuous", "discrete"))
        names.check_bool(f"{label}goal_conditioned", goal_conditioned)
        names.check_choice(f"{label}reward", reward, ("auto", "progress", "sparse", "dense"))
        names.check_positive(f"{label}lidar_rays", lidar_rays, _MOST_RAYS)
        names.check_positive(f"{label}max_obstacles", max_obstacles, _MOST_OBSTACLES)
        names.check_positive(f"{label}max_steps", max_steps)
        names.check_whole(f"{label}obstacles", obstacles, 0, max_obstacles)
        names.check_whole(f"{label}moving", moving, 0, max_obstacles)
        names.check_between(f"{label}obstacle_speed", obstacle_speed, 0, rooms.MAX_OBSTACLE_SPEED)
        names.check_between(f"{label}goal_distance", goal_distance, 1, rooms.LARGEST_DISTANCE)
        names.check_between(f"{label}sensor_noise", sensor_noise, 0, rooms.MAX_NOISE)
        self._goal_conditioned = goal_conditioned
        self._max_steps = max_steps
        automatic = "sparse" if goal_conditioned else "progress"
        self._reward = automatic if reward == "auto" else reward
        goals = RewardOfGoals(_dense if self._reward == "dense" else _sparse)
        self.compute_reward = goals.compute_reward
        self.compute_terminated = goals.compute_terminated
        self._rays = lidar_rays
        self._max_obstacles = max_obstacles
        self._discrete = control == "discrete"
        arguments = locals()
        self._task: dict[str, float] = {name: arguments[name] for name in _TASK}
        self.spec = EnvSpec(
            name=names.changed_call(_NAME, Navigation, locals()),
            observation_space=_observation_space(goal_conditioned, lidar_rays),
            action_space=Discrete(len(_PUSHES)) if self._discrete else Box.of(-1.0, 1.0, (2,)),
            max_episode_steps=max_steps,
            reports=(
                InfoMetric("success", "last" if goal_conditioned else "max"),
                InfoMetric("collision", "sum"),
            ),
            task_space=_task_space(max_obstacles),
            # Progress is a matter of two places.
            goals=goals if goal_conditioned and self._reward != "progress" else None,
        )

    @property
    def default_task(self) -> dict[str, jax.Array]:
        """The arguments of the constructor, as arrays."""
        whole = ("obstacles", "moving", "room")
        given = self._task | {"room": _ANY_ROOM}
        return {
            name: jnp.asarray(x, jnp.int32 if name in whole else jnp.float32) for name, x in given.items()
        }

    def draw_task(self, key: jax.Array) -> dict[str, jax.Array]:
        """The default task in a room that is always the same, one of 2^24."""
        return self.default_task | {"room": jax.random.randint(key, (), 0, _MOST_ROOMS)}

    @property
    def task_scales(self) -> dict[str, TaskScale]:
        """`difficulty`, from 0, a goal within 3 m in an empty room without noise, to 1, the default task."""
        task = self._task
        near = min(_NEAR, task["goal_distance"])

        def fields(difficulty: float) -> dict[str, float]:
            return task | {
                "obstacles": round(difficulty * task["obstacles"]),
                "moving": round(difficulty * task["moving"]),
                "goal_distance": near + difficulty * (task["goal_distance"] - near),
                "sensor_noise": difficulty * task["sensor_noise"],
            }

        return {"difficulty": TaskScale(0.0, 1.0, fields)}

    def reset(
        self, key: jax.Array, task: Mapping[str, jax.Array] | None = None
    ) -> tuple[NavigationState, Any]:
        """Starts an episode in a room of this task (None: the default one), which stays in the state."""
        given = dict(self.default_task if task is None else task)
        room = given.pop("room", jnp.asarray(_ANY_ROOM, jnp.int32))
        words = random_words(key, rooms.words_of_layout(self._max_obstacles) + self._rays + 2)
        layout, noise = jnp.split(words, (rooms.words_of_layout(self._max_obstacles),))
        layout = jnp.where(room == _ANY_ROOM, layout, hashed(room.astype(jnp.uint32), len(layout)))
        params = NavigationParams(**given)
        state = rooms.lay_out(layout, params, self._max_obstacles)
        return state, self._observe(state, noise)

    def step(self, key: jax.Array, state: NavigationState, action: jax.Array) -> tuple[Any, TimeStep]:
        obstacles = rooms.move_obstacles(state.obstacles, state.params.obstacle_speed)
        position, velocity, collision = rooms.drive(state, self._push(action), obstacles)
        before = goal_distance(state.position, state.goal)
        after = goal_distance(position, state.goal)
        state = dataclasses.replace(
            state, position=position, velocity=velocity, obstacles=obstacles, time=state.time + 1
        )
        ends = jnp.zeros((), bool) if self._goal_conditioned else jnp.ones((), bool)
        success = (after < rooms.GOAL_RADIUS) & ~(collision & ends)
        if self._reward == "progress":
            won, hit = success.astype(jnp.float32), collision.astype(jnp.float32)
            reward = 0.2 * (before - after) + won - 2.0 * hit
        else:
            reward = self.compute_reward(position, state.goal)
        return state, TimeStep(
            obs=self._observe(state, random_words(key, self._rays + 2)),
            reward=reward,
            terminated=(success | collision) & ends,
            truncated=state.time >= self._max_steps,
            info={"success": success, "collision": collision},
        )

    def render(self, state: NavigationState) -> np.ndarray:
        """uint8[240, 240, 3]: the room from above."""
        return draw(jax.device_get(state), self._rays)

    def _push(self, action: jax.Array) -> jax.Array:
        if self._discrete:
            return jnp.asarray(_PUSHES)[action]
        return action / jnp.maximum(1.0, jnp.sqrt((action * action).sum()))

    def _observe(self, state: NavigationState, words: jax.Array) -> Any:
        noise = state.params.sensor_noise * rooms.normal_noise(words)
        distances = rooms.lidar(state.position, state.obstacles, self._rays) + noise[2:]
        velocity = jnp.clip((state.velocity + noise[:2]) / rooms.MAX_SPEED, -_SPEED_BOUND, _SPEED_BOUND)
        senses = [velocity, rooms.log_scale(distances)]
        if not self._goal_conditioned:
            return jnp.concatenate([(state.goal - state.position) / (2 * rooms.HALF_WIDTH), *senses])
        observation = jnp.concatenate([state.position / rooms.HALF_WIDTH, *senses])
        return {OBSERVATION: observation, ACHIEVED: state.position, DESIRED: state.goal}


def _observation_space(goal_conditioned: bool, rays: int) -> Space:
    bounds = np.array([1.0] * 2 + [_SPEED_BOUND] * 2 + [1.0] * rays)
    observation = Box.of([*-bounds[:4], *np.zeros(rays)], bounds, bounds.shape)
    if not goal_conditioned:
        return observation
    place = Box.of(-rooms.HALF_WIDTH, rooms.HALF_WIDTH, (2,))
    return Dict(((ACHIEVED, place), (DESIRED, place), (OBSERVATION, observation)))


def _task_space(max_obstacles: int) -> Dict:
    return Dict(
        (
            ("goal_distance", Box.of(1.0, rooms.LARGEST_DISTANCE, ())),
            ("moving", Discrete(max_obstacles + 1)),
            ("obstacle_speed", Box.of(0.0, rooms.MAX_OBSTACLE_SPEED, ())),
            ("obstacles", Discrete(max_obstacles + 1)),
            ("room", Box.of(_ANY_ROOM, _MOST_ROOMS - 1, (), np.int32)),
            ("sensor_noise", Box.of(0.0, rooms.MAX_NOISE, ())),
        )
    )


def draw(state: NavigationState, rays: int) -> np.ndarray:
    """uint8[240, 240, 3]; y points up. Green is the goal, grey stands, orange moves, blue is the robot."""
    picture = np.full((_SIDE, _SIDE, 3), _FLOOR, np.uint8)
    _disc(picture, state.goal, rooms.GOAL_RADIUS, _GOAL)
    position = np.asarray(state.position)
    obstacles = state.obstacles
    reach = np.asarray(rooms.lidar(state.position, obstacles, rays))
    along = np.linspace(0.0, 1.0, _POINTS_PER_RAY)[:, None] * reach
    x, y = (position[i] + along * ray for i, ray in enumerate(rooms.directions(rays)))
    picture[_column(-y), _column(x)] = _RAY
    for k in range(len(obstacles.x)):
        colour = _MOVES if obstacles.direction_x[k] or obstacles.direction_y[k] else _STANDS
        _disc(picture, (obstacles.x[k], obstacles.y[k]), obstacles.radius[k], colour)
    _disc(picture, position, rooms.ROBOT_RADIUS, _ROBOT)
    picture[:_WALL] = picture[-_WALL:] = picture[:, :_WALL] = picture[:, -_WALL:] = _EDGE
    return picture


def _disc(picture: np.ndarray, centre: Any, radius: Any, colour: tuple[int, int, int]) -> None:
    x, y = np.asarray(centre)
    middle = (np.arange(_SIDE) + 0.5) / _SIDE * 2 * rooms.HALF_WIDTH - rooms.HALF_WIDTH
    inside = (middle[None] - x) ** 2 + (-middle[:, None] - y) ** 2 <= radius * abs(radius)
    picture[inside] = colour


def _column(x: np.ndarray) -> np.ndarray:
    return np.clip(((x + rooms.HALF_WIDTH) / (2 * rooms.HALF_WIDTH) * _SIDE).astype(int), 0, _SIDE - 1)
