"""What a collector is, on the device and on the host."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from jaxrl.metrics.reduction import Maximum, Mean, Metric, Metrics, Minimum, Spread, Sum
from jaxrl.rollout.statistics import EpisodeReports
from jaxrl.types import Array, CollectorState, EpisodeTotals, PolicyState, Trajectory


class Collector(abc.ABC):
    """Steps environments with a policy."""

    @abc.abstractmethod
    def collect(
        self, state: CollectorState | None, policy: PolicyState, keys_B: Array
    ) -> tuple[CollectorState | None, Trajectory, EpisodeTotals]:
        """Steps every environment T times.

        Args:
          state: where the environments are; None where the collector itself holds them.
          policy: parameters and statistics; they do not change.
          keys_B: one key per environment for this rollout; nothing else is random.

        Returns:
          (state, trajectory [T, B, ...], totals over the episodes that ended).
        """


def declared_metrics(reports: EpisodeReports) -> Mapping[str, type[Metric]]:
    """What `episode_metrics` reports, with its reduction."""
    return {
        "episode/count": Sum,
        "episode/length": Mean,
        "episode/return": Mean,
        "episode/return_max": Maximum,
        "episode/return_min": Minimum,
        "episode/return_std": Spread,
        **{f"env/{label}": Mean for label in reports.labels},
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
        **{f"env/{label}": Mean(tally.value, tally.count) for label, tally in totals.tallies.items()},
    }
