"""What a collector is, on the device and on the host."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from jaxrl.metrics.reduction import Mean, Metric, Metrics, Sum
from jaxrl.types import Array, CollectorState, EpisodeTotals, PolicyState, Trajectory

# What `episode_metrics` reports, with its reduction.
EPISODE_METRICS: Mapping[str, type[Metric]] = {
    "episode/count": Sum,
    "episode/length": Mean,
    "episode/return": Mean,
}


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


def episode_metrics(totals: EpisodeTotals) -> Metrics:
    """Episodes that ended: how many, and averages over them."""
    return {
        "episode/count": Sum(totals.count),
        "episode/length": Mean(totals.length, totals.count),
        "episode/return": Mean(totals.episode_return, totals.count),
    }
