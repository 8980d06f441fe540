"""Numbers of a server, as Prometheus reads them."""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxrl.inference.serving.service import PolicyService

if TYPE_CHECKING:
    from prometheus_client import Metric

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PREFIX = "jaxrl_serve"


class ServerMetrics:
    """Counts of requests, and what a service counts itself.

    Attributes:
      requests: the counter of a path, one of few, and a status.
      act_seconds: how long actions took.
    """

    def __init__(self, service: PolicyService) -> None:
        from prometheus_client import Counter, Histogram

        self._service = service
        self._started = time.time()
        self._requests = Counter(f"{_PREFIX}_requests", "Requests", ["path", "status"], registry=None)
        self.requests = functools.cache(self._requests.labels)  # which makes text of them and locks
        self.act_seconds = Histogram(
            f"{_PREFIX}_act_seconds", "Seconds to act", buckets=_BUCKETS, registry=None
        )

    def text(self) -> bytes:
        """The text format of Prometheus, version 0.0.4."""
        from prometheus_client import generate_latest

        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """All numbers, as prometheus_client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        service = self._service
        service.sessions.sweep()
        yield from self._requests.collect()
        yield from self.act_seconds.collect()
        versions = service.sessions.policies() | {service.policy}
        for family, name, value, shown in (
            (CounterMetricFamily, "passes", service.batcher.counts.passes, "Passes through the policy"),
            (CounterMetricFamily, "rows", service.batcher.counts.rows, "Observations in them"),
            (CounterMetricFamily, "sessions_expired", service.sessions.expired, "Sessions that ended unused"),
            (CounterMetricFamily, "versions_taken_over", service.taken_over, "New versions of the model"),
            (GaugeMetricFamily, "sessions", len(service.sessions), "Sessions"),
            (GaugeMetricFamily, "versions", len(versions), "Versions of the model in use"),
            (GaugeMetricFamily, "peak_memory_bytes", _peak_memory(), "Most memory of this process so far"),
            (GaugeMetricFamily, "start_time_seconds", self._started, "When the server began"),
        ):
            yield family(f"{_PREFIX}_{name}", shown, value)
        model = GaugeMetricFamily(f"{_PREFIX}_model", "The model of new episodes", labels=["model"])
        model.add_metric([service.policy.facts.label], 1)
        yield model


def _peak_memory() -> int:
    """Bytes; Linux counts kilobytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
