"""Statistics of the observations of rollouts."""

from __future__ import annotations

from jaxrl.envs.base import EnvSpec
from jaxrl.envs.mixture import task_of
from jaxrl.networks import normalizer, task_normalizer
from jaxrl.types import Axis, PyTree, Trajectory


def with_rollout(stats: PyTree, spec: EnvSpec, trajectory: Trajectory, axis: Axis) -> PyTree:
    """Running moments with the observations of a rollout of all devices; of each task its own.

    Args:
      stats: of `Agent.init`.
      spec: of the environment.
      trajectory: of this device; rows that are not `valid` do not count.
      axis: this device.
    """
    task = task_of(spec, trajectory.obs)
    if task is None:
        return normalizer.update(stats, trajectory.obs, trajectory.valid, axis.psum)
    return task_normalizer.update(stats, trajectory.obs, task, trajectory.valid, axis.psum)
