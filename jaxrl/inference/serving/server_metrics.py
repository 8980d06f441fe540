"""Counters of a server, as Prometheus reads them."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Iterator, Mapping

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_PREFIX = "jaxrl_serve"


class ServerMetrics:
    """Requests by path and status, and how long answers took."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self._started = time.time()

    def count(self, path: str, status: int) -> None:
        """Counts a request; `path` must be one of few."""
        self._requests[path, status] += 1

    def observe(self, seconds: float) -> None:
        """Counts the time of an action."""
        self._buckets[bisect.bisect_left(_BUCKETS, seconds)] += 1
        self._seconds += seconds

    def text(self, gauges: Mapping[str, float], counters: Mapping[str, float], label: str) -> str:
        """The text format of Prometheus, version 0.0.4."""
        return "\n".join([*self._lines(gauges, counters, label), ""])

    def _lines(self, gauges: Mapping[str, float], counters: Mapping[str, float], label: str) -> Iterator[str]:
        yield f"# TYPE {_PREFIX}_requests_total counter"
        for (path, status), count in sorted(self._requests.items()):
            yield f'{_PREFIX}_requests_total{{path="{path}",status="{status}"}} {count}'
        yield f"# TYPE {_PREFIX}_act_seconds histogram"
        total = 0
        for bound, count in zip((*_BUCKETS, "+Inf"), self._buckets, strict=True):
            total += count
            yield f'{_PREFIX}_act_seconds_bucket{{le="{bound}"}} {total}'
        yield f"{_PREFIX}_act_seconds_sum {self._seconds:.9g}"
        yield f"{_PREFIX}_act_seconds_count {total}"
        for kind, values in (("counter", counters), ("gauge", gauges)):
            for name, value in values.items():
                yield f"# TYPE {_PREFIX}_{name} {kind}"
                yield f"{_PREFIX}_{name} {value:.12g}"
        yield f"# TYPE {_PREFIX}_start_time_seconds gauge"
        yield f"{_PREFIX}_start_time_seconds {self._started:.3f}"
        escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        yield f"# TYPE {_PREFIX}_model gauge"
        yield f'{_PREFIX}_model{{model="{escaped}"}} 1'
