"""The levels of an evaluation: random solvable ones, a pool's, and named ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxrl.config import ConfigError
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.tasks import level_pool, method_of_tasks, named_tasks

# Keeps the keys of levels apart from the keys of episodes and of training.
_STREAM = 0x4C455645
_AT_ONCE = 4096
# At least one of so many samples for each level must be solvable.
_MOST_DRAWS = 100


def choose(env: JaxEnv, count: int, seed: int) -> Any:
    """Levels [count, ...] on the host.

    If the environment samples levels, the first solvable ones, if it can tell; of a pool, random different
    ones.

    Args:
      env: whose levels are meant.
      count: how many.
      seed: decides which.

    Raises:
      ConfigError: it has no levels, or not so many.
    """
    pool = level_pool(env)
    draw = method_of_tasks(env, "draw_task")
    if pool is not None:
        pool = jax.tree.map(np.asarray, pool)
        there = len(jax.tree.leaves(pool)[0])
        if count > there:
            raise ConfigError(f"`--levels` (={count}) must be at most {there}, all that {env.spec.name} has")
        chosen = np.sort(np.random.default_rng([_STREAM, seed]).permutation(there)[:count])
        return jax.tree.map(lambda x: x[chosen], pool)
    if draw is None:
        raise ConfigError(f"`--levels` (={count}) needs an environment with levels: {env.spec.name} has none")
    return _draw_solvable(draw, method_of_tasks(env, "is_solvable"), count, seed, env.spec.name)


def with_names(env: JaxEnv) -> tuple[tuple[str, ...], Any]:
    """The names of the environment's own levels, and these [names, ...]; None if it has none."""
    named: Mapping[str, Any] = named_tasks(env)
    if not named:
        return (), None
    return tuple(named), jax.tree.map(lambda *xs: np.stack(xs), *named.values())


def _draw_solvable(draw: Any, is_solvable: Any, count: int, seed: int, name: str) -> Any:
    base = jax.random.fold_in(jax.random.key(seed), _STREAM)

    @jax.jit
    def some(first: jax.Array) -> tuple[Any, jax.Array]:
        index = first + jax.numpy.arange(_AT_ONCE)
        task = jax.vmap(draw)(jax.vmap(jax.random.fold_in, in_axes=(None, 0))(base, index))
        solvable = jax.numpy.ones(_AT_ONCE, bool) if is_solvable is None else jax.vmap(is_solvable)(task)
        return task, solvable

    found: list[Any] = []
    have = 0
    for first in range(0, _MOST_DRAWS * count + _AT_ONCE, _AT_ONCE):
        task, solvable = jax.device_get(some(first))
        found.append(jax.tree.map(lambda x: x[solvable], task))  # noqa: B023
        have += int(solvable.sum())
        if have >= count:
            return jax.tree.map(lambda *xs: np.concatenate(xs)[:count], *found)
    raise ConfigError(f"`--levels` (={count}): too few random levels of {name} can be solved")
