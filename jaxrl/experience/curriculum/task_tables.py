"""Tasks of stages, and weights of their losses, as arrays from which a program samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean
from jaxrl.config.fields import shorten
from jaxrl.config.stages import Stage, TaskValue
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.host_env import HostFactory
from jaxrl.envs.mixture import TaskMixture, task_of
from jaxrl.envs.spaces import Box, Dict, Discrete, bounds
from jaxrl.envs.tasks import default_task, task_groups, task_scales
from jaxrl.types import Array, PyTree, Trajectory

_BITS = 24  # of a float32 in [0, 1)


@dataclass(frozen=True)
class _FieldTable:
    """The values of a field of the tasks, by stage.

    Attributes:
      low, high: [S], of a range, both included.
      values: [S, K], to be sampled from instead, where `count` is above 0.
      count: int32[S], how many of them there are.
    """

    low: np.ndarray
    high: np.ndarray
    values: np.ndarray
    count: np.ndarray

    def draw(self, word: Array, stage: Array) -> Array:
        """A value of a stage int32[], from a random word uint32[]."""
        part = (word >> (32 - _BITS)).astype(jnp.float32) / 2**_BITS
        low, high, count = (jnp.asarray(x)[stage] for x in (self.low, self.high, self.count))
        if jnp.issubdtype(low.dtype, jnp.integer):
            ranged = low + _index(part, high - low + 1).astype(low.dtype)
        else:
            ranged = jnp.minimum(low + part * (high - low), high)
        listed = jnp.asarray(self.values)[stage, _index(part, jnp.maximum(count, 1))]
        return jnp.where(count > 0, listed, ranged)


def _index(part: Array, count: Array) -> Array:
    """int32 in [0, count), of a number in [0, 1)."""
    return jnp.minimum((part * count.astype(jnp.float32)).astype(jnp.int32), count - 1)


@dataclass(frozen=True)
class TaskTables:
    """The tasks of S stages: of each field that one of them names its values, of the others the default."""

    default: PyTree
    fields: Mapping[str, _FieldTable]

    @classmethod
    def of(cls, stages: Sequence[Stage], env: JaxEnv | HostFactory) -> TaskTables:
        """Checks the stages' tasks against an environment's; ConfigError names stage and field."""
        space = env.spec.task_space
        default: Any
        if isinstance(env, JaxEnv):
            default = default_task(env)
            if not isinstance(space, Dict):
                text = "needs tasks that are a dict, for a curriculum"
                raise ConfigError(f"`env.name` (={env.spec.name!r}) {text}")
        else:  # Numbers for `reset(options=...)`; NaN if a stage leaves one to the environment.
            default = dict.fromkeys(sorted({x for stage in stages for x in stage.task}), np.float32(np.nan))
            if not default:
                raise ConfigError(
                    f"`curriculum.stages`: none has a `task`, and {env.spec.name} declares no tasks"
                )
        parts: Mapping[str, Any] = {name: Box.of(-np.inf, np.inf, ()) for name in default}
        if isinstance(space, Dict):
            parts = dict(space.spaces)
        named: dict[str, list[TaskValue | np.ndarray | None]] = {}
        for i, stage in enumerate(stages):
            for name, value in stage.task.items():
                label = f"stage {i + 1}: `task.{name}`"
                for field, found in _check(label, name, value, parts, env).items():
                    column = named.setdefault(field, [None] * len(stages))
                    if column[i] is not None:
                        raise ConfigError(f"`curriculum.stages`: {label} sets {field} again")
                    column[i] = found
        fields = {name: _table(column, np.asarray(default[name])) for name, column in sorted(named.items())}
        return cls(default, fields)

    def draw(self, key: Array, stage: Array) -> PyTree:
        """A task of a stage, int32[]."""
        words = jax.random.bits(key, (max(1, len(self.fields)),), jnp.uint32)
        drawn = {name: table.draw(words[i], stage) for i, (name, table) in enumerate(self.fields.items())}
        return self.default | drawn


def _table(column: Sequence[TaskValue | np.ndarray | None], default: np.ndarray) -> _FieldTable:
    """The table of a field, from its value in each stage; None is the default."""
    ranges = []
    lists = []
    for value in column:
        listed = value if isinstance(value, np.ndarray) else np.zeros(0, default.dtype)
        lists.append(listed)
        ends = value if isinstance(value, tuple) else (value, value)
        ranges.append((default, default) if value is None or len(listed) else ends)
    low, high = np.array(ranges).astype(default.dtype).T
    longest = max(1, *map(len, lists))
    values = np.stack([np.resize(x, longest) if len(x) else np.zeros(longest, default.dtype) for x in lists])
    return _FieldTable(low, high, values.astype(default.dtype), np.array([len(x) for x in lists], np.int32))


def _check(
    label: str, name: str, value: TaskValue, parts: Mapping[str, Any], env: JaxEnv | HostFactory
) -> Mapping[str, TaskValue | np.ndarray]:
    """For each field of the tasks a number, a range or an array of values to sample from."""
    given = f"`curriculum.stages`: {label}"
    groups = task_groups(env) if isinstance(env, JaxEnv) else {}
    scales = task_scales(env) if isinstance(env, JaxEnv) else {}
    if name in scales:
        scale = scales[name]
        if not isinstance(value, float) or not scale.low <= value <= scale.high:
            text = f"must be a number from {scale.low:g} to {scale.high:g}"
            raise ConfigError(f"{given} (={shorten(value)}) {text} in {env.spec.name}")
        return scale.fields(value)
    if name in groups:
        group = groups[name]
        names = value if isinstance(value, tuple) else (value,)
        for member in names:
            if member not in group.members:
                hint = did_you_mean(str(member), group.members)
                raise ConfigError(f"{given} (={shorten(member)}) is no {name} of {env.spec.name}{hint}")
        return {group.field: np.unique(np.concatenate([group.members[str(member)] for member in names]))}
    if name not in parts:
        hint = did_you_mean(name, {*parts, *groups, *scales})
        raise ConfigError(f"{given} is no field of the tasks of {env.spec.name}{hint}")
    space = parts[name]
    ends = value if isinstance(value, tuple) else (value, value)
    if not isinstance(space, Box | Discrete) or space.shape != ():
        raise ConfigError(f"{given} is no number in the tasks of {env.spec.name}, and cannot be chosen")
    if any(isinstance(x, str) for x in ends):
        raise ConfigError(f"{given} (={shorten(value)}) must be a number or a range")
    low, high = map(float, bounds(space))
    for x in ends:
        if not low <= float(x) <= high:
            raise ConfigError(
                f"{given} (={shorten(x)}) must lie between {low:g} and {high:g} in {env.spec.name}"
            )
        if np.issubdtype(np.dtype(space.dtype), np.integer) and not float(x).is_integer():
            raise ConfigError(f"{given} (={shorten(x)}) must be a whole number")
    return {name: value}


@dataclass(frozen=True)
class TaskWeights:
    """The weights float32[S, K] of tasks in stages; their mean over the environments is 1 in each stage."""

    names: tuple[str, ...]
    table: np.ndarray

    @classmethod
    def of(cls, stages: Sequence[Stage], env: JaxEnv | HostFactory) -> TaskWeights | None:
        """The weights of stages; None if none names any; ConfigError if they do not suit the environment."""
        names = env.spec.task_names
        for i, stage in enumerate(stages):
            label = f"`curriculum.stages`: stage {i + 1}"
            if stage.weights and not names:
                raise ConfigError(f"{label}: `weights` are of `env.tasks`, and {env.spec.name} is one task")
            if stage.task and names:
                raise ConfigError(f"{label}: `task` must be left out with `env.tasks`, which take none")
            for name in stage.weights:
                if name not in names:
                    hint = did_you_mean(name, names)
                    raise ConfigError(f"{label}: `weights` (={name!r}) is none of `env.tasks`{hint}")
        if not any(stage.weights for stage in stages):
            return None
        assert isinstance(env, TaskMixture)
        table = np.array([[stage.weights.get(name, 1.0) for name in names] for stage in stages])
        mean = table[:, env.pattern].mean(1, keepdims=True)
        for i in np.flatnonzero(mean == 0).tolist():
            raise ConfigError(f"`curriculum.stages`: stage {i + 1}: `weights` must not all be 0")
        return cls(names, (table / mean).astype(np.float32))

    def of_rows(self, stage: Array, env: JaxEnv | HostFactory, trajectory: Trajectory) -> Array:
        """float32[T, B], of each step in a stage int32[]."""
        task_TB = task_of(env.spec, trajectory.obs)
        assert task_TB is not None
        return jnp.asarray(self.table)[stage][task_TB]
