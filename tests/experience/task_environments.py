"""An environment with tasks, and samplers of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, InfoMetric, JaxEnv, TimeStep
from jaxrl.experience.tasks import TaskSampler
from jaxrl.types import Array, Axis, EpisodeRows, PyTree

LEVELS = 4


@flax.struct.dataclass
class CorridorState:
    """int32[]: the level of the episode, and its steps so far."""

    level: Array
    time: Array


class Corridor(JaxEnv):
    """Episodes of `level + 1` steps; the last rewards with the level, and succeeds if it is odd.

    The observation is (level, steps so far).
    """

    default_task = {"level": jnp.int32(0)}  # noqa: RUF012

    def __init__(self) -> None:
        self.spec = EnvSpec(
            name="test:Corridor",
            observation_space=Box.of(0.0, 10.0, (2,)),
            action_space=Discrete(2),
            max_episode_steps=LEVELS,
            reports=(InfoMetric("success", "max"),),
            task_space=Dict((("level", Discrete(LEVELS)),)),
        )

    def reset(self, key: jax.Array, task: Any = None) -> tuple[CorridorState, jax.Array]:
        state = CorridorState(task["level"], jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(self, key: jax.Array, state: CorridorState, action: jax.Array) -> tuple[Any, TimeStep]:
        state = CorridorState(state.level, state.time + 1)
        ends = state.time > state.level
        return state, TimeStep(
            obs=self._observe(state),
            reward=jnp.where(ends, state.level, 0).astype(jnp.float32),
            terminated=ends,
            truncated=jnp.zeros((), bool),
            info={"success": ends & (state.level % 2 == 1)},
        )

    def _observe(self, state: CorridorState) -> jax.Array:
        return jnp.stack([state.level, state.time]).astype(jnp.float32)


@flax.struct.dataclass
class ReplayState:
    """float32[LEVELS]: the score of each level, how often it was played, how often it succeeded."""

    score: Array
    played: Array
    succeeded: Array


class LevelReplay(TaskSampler):
    """Prioritised level replay (Jiang et al. 2021), in lockstep: levels by the size of their advantages."""

    signals = ("advantage",)

    def init(self, key: Array) -> ReplayState:
        zeros = jnp.zeros(LEVELS, jnp.float32)
        return ReplayState(zeros, zeros, zeros)

    def choose(self, state: ReplayState, keys_B: Array) -> PyTree:
        logits = jnp.where(state.played > 0, 0.1 * state.score, 10.0)  # levels never played come first
        level = jax.vmap(lambda key: jax.random.categorical(key, logits))(keys_B)
        return {"level": level.astype(jnp.int32)}

    def update(
        self, state: ReplayState, episodes: EpisodeRows, signals: Mapping[str, Array], axis: Axis
    ) -> ReplayState:
        assert episodes.success is not None
        of_level = jax.nn.one_hot(episodes.task["level"], LEVELS, dtype=jnp.float32)
        ended = episodes.ended.astype(jnp.float32)[..., None] * of_level
        score = jnp.abs(signals["advantage"])[..., None] * of_level
        played, succeeded, scores, steps = axis.psum(
            (
                ended.sum((0, 1)),
                (episodes.success[..., None] * ended).sum((0, 1)),
                score.sum((0, 1)),
                of_level.sum((0, 1)),
            )
        )
        seen = steps > 0
        return ReplayState(
            score=jnp.where(seen, scores / jnp.where(seen, steps, 1.0), state.score),
            played=state.played + played,
            succeeded=state.succeeded + succeeded,
        )


class Alternating(TaskSampler):
    """Level 1 in the first rollout, level 3 in those after it."""

    def init(self, key: Array) -> Array:
        return jnp.int32(1)

    def choose(self, state: Array, keys_B: Array) -> PyTree:
        return {"level": jnp.broadcast_to(state, keys_B.shape)}

    def update(self, state: Array, episodes: EpisodeRows, signals: Mapping[str, Array], axis: Axis) -> Array:
        return jnp.int32(3)


class FromConfig(Alternating):
    """As `curriculum.name` makes one."""

    def __init__(self, config: Any, env: JaxEnv) -> None:
        assert config.curriculum.is_used
        assert env.spec.task_space is not None


class Silent(Corridor):
    """Says nothing of success."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, name="test:Silent", reports=())


class DrawnCorridor(Corridor):
    """Draws its levels, and edits one to the next; level 0 counts as one that cannot be solved."""

    def draw_task(self, key: jax.Array) -> PyTree:
        return {"level": jax.random.randint(key, (), 0, LEVELS)}

    def mutate(self, key: jax.Array, task: PyTree) -> PyTree:
        return {"level": (task["level"] + 1) % LEVELS}

    def is_solvable(self, task: PyTree) -> jax.Array:
        return task["level"] > 0


class PooledCorridor(Corridor):
    """Has a pool of all levels."""

    level_pool = {"level": jnp.arange(LEVELS)}  # noqa: RUF012
