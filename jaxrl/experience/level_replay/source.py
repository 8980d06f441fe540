"""The source of new levels: sampled by the environment, or all there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.tasks import default_task, level_pool, method_of_tasks
from jaxrl.experience.level_replay import buffer
from jaxrl.experience.level_replay.buffer import LevelBuffer
from jaxrl.types import Array, PyTree


@dataclass(frozen=True)
class LevelSource:
    """The levels of an environment.

    Attributes:
      capacity: C, of the buffer.
      pool: tree of [C, ...], all levels there are, each at its own place; None if new ones are sampled.
      draw: a new level from a key.
      example: a level, for its shapes only.
    """

    capacity: int
    pool: PyTree
    draw: Callable[[Array], PyTree]
    example: PyTree

    @classmethod
    def of(cls, config: Config, env: JaxEnv) -> LevelSource:
        """The levels of `env`.

        Raises:
          ConfigError: it neither samples levels nor has a pool of them.
        """
        pool = level_pool(env)
        draw = method_of_tasks(env, "draw_task")
        if pool is not None:
            count = len(jax.tree.leaves(pool)[0])
            pool = jax.tree.map(jnp.asarray, pool)

            def one(key: Array) -> PyTree:
                index = jax.random.randint(key, (), 0, count)
                return jax.tree.map(lambda x: x[index], pool)

            return cls(count, pool, one, jax.tree.map(lambda x: x[0], pool))
        if draw is None:
            raise ConfigError(
                f"`curriculum.name` (={config.curriculum.name!r}) needs levels: {env.spec.name} has neither "
                "draw_task(key) nor level_pool"
            )
        return cls(config.levels.capacity, None, draw, default_task(env))

    def empty_buffer(self) -> LevelBuffer:
        """A buffer in which no level was played."""
        nothing = jax.tree.map(
            lambda x: jnp.zeros((self.capacity, *jnp.shape(x)), jnp.asarray(x).dtype), self.example
        )
        return buffer.empty(nothing if self.pool is None else self.pool, self.capacity)
