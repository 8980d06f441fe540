"""`jaxrl:Platformer`: levels, rewards and ends of episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.envs.names import changed_call, check_choice, check_positive
from jaxrl.envs.native.platformer import level as tiles
from jaxrl.envs.native.platformer.level import CATEGORIES, COLUMNS, ROWS, LevelTables, PlatformerLevel
from jaxrl.envs.native.platformer.level_files import read_levels
from jaxrl.envs.native.platformer.observations import (
    MODALITIES,
    GraphTables,
    Observer,
    PlatformerState,
    rows_of,
    spaces_of,
)
from jaxrl.envs.native.platformer.physics import NUM_ACTIONS, SIZE, TILE, advance, spans, start_of
from jaxrl.envs.native.random_words import random_words
from jaxrl.envs.tasks import TaskGroup, TaskScale

_NAME = "jaxrl:Platformer"
_ANY_LEVEL = -1  # of a task
_TILE_REWARD = 0.05  # for each tile that the way gets shorter
_MINE_REWARD = -0.5  # with more at stake, mines teach a policy to stand still
# Of pictures: pixels of a unit, and what has which colour.
_SCALE = 2
_AIR, _ROCK, _EDGE, _MINE, _SWITCH, _CLOSED, _OPEN, _PLAYER = range(8)
_COLOURS = np.array(
    [*((236, 238, 242), (98, 104, 116), (66, 70, 80), (208, 54, 54), (242, 178, 40)),
     *((170, 174, 182), (84, 176, 96), (36, 36, 44))], np.uint8
)  # fmt: skip


class Platformer(JaxEnv):
    """Reach the switch, then the exit, without touching a mine; docs/platformer.md.

    A task `{"level": i}` sets the level of an episode by its index in `levels`; -1, the default, samples one.

    Args:
      levels: a folder with levels of each category (`jaxrl prepare-data`); "train" and "test" come
        with the package.
      category: of the levels that are played: simple, medium, complex, mine_heavy, exploration, or "all".
      observation: "state", "local", "global", "graph" or "way"; several give a dict, as "graph" alone does.
      reward: "shaped", with rewards on the way, or "sparse", for the exit and mines alone.
      max_steps: an episode is truncated after so many.
    """

    def __init__(
        self,
        levels: str = "train",
        category: str = "all",
        observation: str | tuple[str, ...] = "state",
        reward: str = "shaped",
        max_steps: int = 400,
    ):
        label = f"{_NAME}: "
        self._is_dict = not isinstance(observation, str) or observation == "graph"
        self._modalities: tuple[str, ...] = (observation,) if isinstance(observation, str) else observation
        if not isinstance(self._modalities, tuple) or not self._modalities:
            raise ValueError(f"{label}observation (={observation!r}) must be a name, or a tuple of names")
        for modality in self._modalities:
            check_choice(f"{label}observation", modality, MODALITIES)
        if len(set(self._modalities)) < len(self._modalities):
            raise ValueError(f"{label}observation (={observation!r}) must hold each name once")
        self._max_steps = check_positive(f"{label}max_steps", max_steps)
        self._shaped = check_choice(f"{label}reward", reward, ("shaped", "sparse")) == "shaped"
        self.levels = read_levels(label, levels, category)
        self._tables = LevelTables.of(self.levels)
        graphs = GraphTables.of(self.levels) if "graph" in self._modalities else None
        self._observer = Observer(self._tables, graphs)
        parts = [pair for name in self._modalities for pair in spaces_of(name, graphs)]
        spaces = tuple(sorted(parts, key=itemgetter(0)))
        self.spec = EnvSpec(
            name=changed_call(_NAME, Platformer, locals()),
            observation_space=Dict(spaces) if self._is_dict else spaces[0][1],
            action_space=Discrete(NUM_ACTIONS),
            max_episode_steps=max_steps,
            reports=(
                InfoMetric("success", "max"),
                InfoMetric("mine_contacts", "sum"),
                InfoMetric("steps_over_optimal", "last"),
            ),
            task_space=Dict((("level", Box.of(_ANY_LEVEL, len(self.levels) - 1, (), np.int32)),)),
        )

    @property
    def default_task(self) -> dict[str, jax.Array]:
        """A random level."""
        return {"level": jnp.asarray(_ANY_LEVEL, jnp.int32)}

    @property
    def level_pool(self) -> dict[str, np.ndarray]:
        return {"level": np.arange(len(self.levels), dtype=np.int32)}

    @property
    def task_groups(self) -> dict[str, TaskGroup]:
        categories = np.array([level.category for level in self.levels])
        found = {name: np.flatnonzero(categories == name).astype(np.int32) for name in CATEGORIES}
        return {"category": TaskGroup("level", {name: x for name, x in found.items() if len(x)})}

    @property
    def task_scales(self) -> dict[str, TaskScale]:
        """`difficulty`: at 0 the first category that is played, between the first few, at 1 all of them."""
        members = [*self.task_groups["category"].members.values()]

        def fields(difficulty: float) -> dict[str, np.ndarray]:
            return {"level": np.concatenate(members[: 1 + round(difficulty * (len(members) - 1))])}

        return {"difficulty": TaskScale(0.0, 1.0, fields)}

    def reset(
        self, key: jax.Array, task: Mapping[str, jax.Array] | None = None
    ) -> tuple[PlatformerState, Any]:
        # Of so few levels each is sampled equally often, up to a part in millions.
        word = random_words(key, 1)[0] >> 1
        drawn = (word % jnp.uint32(len(self.levels))).astype(jnp.int32)
        level = (self.default_task if task is None else task)["level"]
        return self.start(jnp.where(level == _ANY_LEVEL, drawn, level))

    def start(self, level: jax.Array) -> tuple[PlatformerState, Any]:
        """Starts an episode in one of `levels`, by its index int32[]."""
        place = jnp.asarray(self._tables.start)[level]
        x, y = start_of(place[0], place[1])
        zero = jnp.zeros((), jnp.int32)
        state = PlatformerState(level=level, x=x, y=y, vx=zero, vy=zero, on=zero > 0, time=zero)
        return state, self._observe(state)

    def step(self, key: jax.Array, state: PlatformerState, action: jax.Array) -> tuple[Any, TimeStep]:
        body = (state.x, state.y, state.vx, state.vy)
        x, y, vx, vy = advance(jnp, self._wall_test(state.level), body, action)
        on = state.on | self._touches(self._tables.switch, state.level, x, y)
        mine = self._touches_mine(state.level, x, y)
        success = on & self._touches(self._tables.exit, state.level, x, y) & ~mine
        after = dataclasses.replace(state, x=x, y=y, vx=vx, vy=vy, on=on, time=state.time + 1)
        reward = success.astype(jnp.float32) + _MINE_REWARD * mine.astype(jnp.float32)
        if self._shaped:
            reward = reward + _TILE_REWARD * (self._way(state) - self._way(after)).astype(jnp.float32)
        optimal = jnp.asarray(self._tables.optimal_steps)[state.level]
        ratio = after.time.astype(jnp.float32) / jnp.maximum(optimal, 1).astype(jnp.float32)
        return after, TimeStep(
            obs=self._observe(after),
            reward=reward,
            terminated=success | mine,
            truncated=after.time >= self._max_steps,
            info={
                "success": success,
                "mine_contacts": mine,
                "steps_over_optimal": jnp.where(success & (optimal > 0), ratio, jnp.nan),
            },
        )

    def render(self, state: PlatformerState) -> np.ndarray:
        """uint8[height, width, 3]: the whole level, 16 pixels a tile."""
        return draw(self.levels[int(state.level)], jax.device_get(state))

    def _observe(self, state: PlatformerState) -> Any:
        blocked = self._wall_test(state.level)
        touches: tuple[jax.Array, ...] = ()
        if "state" in self._modalities or "graph" in self._modalities:
            x, y = state.x, state.y
            touches = (blocked(x, y + 1), blocked(x - 1, y), blocked(x + 1, y))
        found: dict[str, Any] = {}
        for name in self._modalities:
            found |= self._observer.observe(name, state, touches)
        return found if self._is_dict else found[self._modalities[0]]

    def _wall_test(self, level: jax.Array) -> Any:
        def blocked(x: jax.Array, y: jax.Array) -> jax.Array:
            upper, lower = (rows_of(self._tables.solid, level, at // TILE) for at in (y, y + SIZE - 1))
            words = upper | lower
            return (((words >> (x // TILE)) | (words >> ((x + SIZE - 1) // TILE))) & 1) > 0

        return blocked

    def _touches(self, places: np.ndarray, level: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """bool[]: whether the player overlaps the tile of the switch or the exit."""
        left, top = (jnp.asarray(places)[level, i] * TILE for i in (0, 1))
        return (x < left + TILE) & (x + SIZE > left) & (y < top + TILE) & (y + SIZE > top)

    def _touches_mine(self, level: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        columns = spans(x, *tiles.MINE_PART)
        rows = spans(y, *tiles.MINE_PART)
        words = [jnp.where(rows[2 + i], rows_of(self._tables.mines, level, rows[i]), 0) for i in (0, 1)]
        found = words[0] | words[1]
        hits = [((found >> columns[i]) & 1 > 0) & columns[2 + i] for i in (0, 1)]
        return hits[0] | hits[1]

    def _way(self, state: PlatformerState) -> jax.Array:
        """int32[]: tiles to walk from here to the switch and on to the exit, or from here to the exit."""
        tables = self._tables
        switch = jnp.asarray(tables.switch)[state.level]
        index, switch_index = (
            (state.level * ROWS + row) * COLUMNS + column
            for column, row in (state.tile, (switch[0], switch[1]))
        )
        to_switch, to_exit = (jnp.asarray(table.reshape(-1)) for table in (tables.to_switch, tables.to_exit))
        first = jnp.where(state.on, to_exit[index], to_switch[index])
        return first + jnp.where(state.on, 0, to_exit[switch_index])


def draw(level: PlatformerLevel, state: PlatformerState) -> np.ndarray:
    """uint8[height, width, 3]: mines are red, the switch yellow, the open exit green, the player black."""
    height = len(level.rows) * TILE
    width = len(level.rows[0]) * TILE
    picture = np.kron(level.tiles_of(tiles.SOLID), np.ones((TILE, TILE), int))[:height, :width] * _ROCK
    top = (picture == _ROCK) & (np.roll(picture, 1, axis=0) == _AIR)
    picture[top] = _EDGE
    for row, column in np.argwhere(level.tiles_of(tiles.MINE)):
        _tile(picture, column, row)[slice(*tiles.MINE_PART), slice(*tiles.MINE_PART)] = _MINE
    if not state.on:
        _tile(picture, *level.place_of(tiles.SWITCH))[3:, 2:6] = _SWITCH
    _tile(picture, *level.place_of(tiles.EXIT))[:, 1:7] = _OPEN if state.on else _CLOSED
    x = int(state.x)
    y = int(state.y)
    picture[y : y + SIZE, x + 1 : x + SIZE - 1] = _PLAYER
    return _COLOURS[np.kron(picture, np.ones((_SCALE, _SCALE), int))]


def _tile(picture: np.ndarray, column: int, row: int) -> np.ndarray:
    return picture[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
