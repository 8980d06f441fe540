"""Weights of several tasks' losses by stage of a curriculum (`env.tasks`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxrl.config import ConfigError
from jaxrl.config.errors import did_you_mean
from jaxrl.config.stages import Stage
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.host_env import HostFactory
from jaxrl.envs.mixture import TaskMixture, task_of
from jaxrl.types import Array, Trajectory


@dataclass(frozen=True)
class TaskWeights:
    """The weights of K tasks in S stages.

    Attributes:
      table: float32[S, K]; the mean over the environments is 1 in each stage.
    """

    names: tuple[str, ...]
    table: np.ndarray

    @classmethod
    def of(cls, stages: Sequence[Stage], env: JaxEnv | HostFactory) -> TaskWeights | None:
        """The weights of stages; None if none of them names any.

        Raises:
          ConfigError: a stage's weights, or its task, do not suit the environment.
        """
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
