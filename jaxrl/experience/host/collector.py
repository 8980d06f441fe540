"""Collecting from environments on the host (Sebulba in Hessel et al. 2021): what collectors share.

They return the same `Trajectory` as a `DeviceCollector`; `jaxrl.experience.host.actor` lets one work in its
own thread while the learner learns.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import jax

from jaxrl.envs.host_env import HostEnv
from jaxrl.experience.collector import Collector
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.experience.tasks import TaskSampler
from jaxrl.types import Acting, Array, EpisodeTotals, Trajectory

Place = Callable[[Trajectory, EpisodeTotals], tuple[Trajectory, EpisodeTotals]]


@dataclass(frozen=True)
class HostCollectorOptions:
    """Options of the collector.

    Attributes:
      length: T.
      chunk: L; the carry before every L-th step is kept.
      staggered: True if the first episode of each environment is cut off and should not be reported.
      device: where the agent works; None is JAX's default.
      reports: the values reported of episodes; the environments were started with its `info_keys`.
      index: indices of the rows, environments or their agents, over all processes; None: 0 to B - 1.
      tasks: chose the tasks that `collect` deals; None: none are.
      place: (trajectory, totals) of host arrays and arrays of `device`, observations not decoded -> what
        `collect` returns; None puts everything on `device`.
    """

    length: int
    chunk: int
    staggered: bool = False
    device: jax.Device | None = None
    reports: EpisodeReports = NO_REPORTS
    index: tuple[int, ...] | None = None
    tasks: TaskSampler | None = None
    place: Place | None = None


class HostCollector(Collector):
    """A collector that holds its environments.

    Attributes:
      env: the environments. Not closed here.
    """

    env: HostEnv

    @abc.abstractmethod
    def prepare(self, acting: Acting, keys_B: Array) -> None:
        """Compiles everything and waits for the first observations; before the first `collect`."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """Called from another thread: `collect` raises Cancelled at its next step, now and ever after."""

    @abc.abstractmethod
    def overdue(self) -> str | None:
        """The environments that have not answered in time, for another thread to ask; None if all is well."""

    @abc.abstractmethod
    def waits(self) -> dict[str, float]:
        """Seconds spent waiting so far, by what for, on the average of the groups."""
