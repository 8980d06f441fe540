"""The collector of experience, on the device and on the host."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from jaxrl.envs.mixture import TASK
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.metrics.reduction import Maximum, Mean, Metric, Metrics, Minimum, Spread, Sum
from jaxrl.types import Acting, Array, CollectorState, EpisodeTotals, PyTree, Trajectory


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
