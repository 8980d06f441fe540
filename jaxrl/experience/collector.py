"""Collectors of experience, on the device and on the host, and the metrics of the episodes that end."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax

from jaxrl.envs.host_env import HostEnv
from jaxrl.envs.mixture import TASK
from jaxrl.experience.statistics import NO_REPORTS, EpisodeReports
from jaxrl.experience.tasks import TaskSampler
from jaxrl.metrics.reduction import Maximum, Mean, Metric, Metrics, Minimum, Spread, Sum
from jaxrl.types import Acting, Array, CollectorState, EpisodeTotals, PyTree, Trajectory

Place = Callable[[Trajectory, EpisodeTotals], tuple[Trajectory, EpisodeTotals]]


class Collector(abc.ABC):
    """Steps environments with an agent."""

    @abc.abstractmethod
    def collect(
        self, state: CollectorState | None, acting: Acting, keys_B: Array, tasks: PyTree = None
    ) -> tuple[CollectorState | None, Trajectory, EpisodeTotals]:
        """Steps every environment T times.

        Args:
          state: where the environments are; None if the collector itself holds them.
          acting: the parameters that act; it does not change.
          keys_B: one key per environment for this rollout; nothing else is random.
          tasks: the state of the task sampler; None without one.

        Returns:
          (state, trajectory [T, B, ...], totals over the episodes that ended).
        """


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
    """A collector that holds its environments, which it does not close (Sebulba in Hessel et al. 2021).

    It returns the same `Trajectory` as a `DeviceCollector`; an `Actor` lets it work in a separate thread.
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


def report_metric(label: str) -> str:
    """The metric of a report: `env/LABEL`, or `task/NAME/...` of one of several tasks."""
    return label if label.startswith(f"{TASK}/") else f"env/{label}"


def declared_metrics(reports: EpisodeReports) -> Mapping[str, type[Metric]]:
    """The metrics of `episode_metrics`, with their reductions."""
    return {
        "episode/count": Sum,
        "episode/length": Mean,
        "episode/return": Mean,
        "episode/return_max": Maximum,
        "episode/return_min": Minimum,
        "episode/return_std": Spread,
        **{report_metric(label): Mean for label in reports.labels},
    }


def episode_metrics(totals: EpisodeTotals) -> Metrics:
    """Episodes that ended: how many, averages over them, and how far their returns lie apart."""
    return {
        "episode/count": Sum(totals.count),
        "episode/length": Mean(totals.length, totals.count),
        "episode/return": Mean(totals.episode_return, totals.count),
        "episode/return_max": Maximum(totals.highest),
        "episode/return_min": Minimum(totals.lowest),
        "episode/return_std": Spread.of(totals.episode_return, totals.count, totals.squares),
        **{report_metric(label): Mean(tally.value, tally.count) for label, tally in totals.tallies.items()},
    }
