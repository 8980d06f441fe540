"""Keeps the devices busy: dispatches of iterations, a few in flight, their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.experience.host.threads import Cancelled
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.reduction import Interval, Metrics
from jaxrl.programs.runtime import Runtime
from jaxrl.training.coordination import Coordinator
from jaxrl.types import Array, TrainState

# Programs queued on the devices at once: one runs while the metrics of the one before are read.
MAX_IN_FLIGHT = 2


@dataclass(frozen=True)
class Dispatch:
    """Iterations that were handed to the devices together, and arrays that are ready when these are.

    Attributes:
      iteration: at which they end.
      interval: the metrics of the log interval up to there.
      metrics: the metrics of these iterations alone, if those are wanted.
      failed: bool[], true if the loop ended before an iteration that was not finite.
      closes_row: true if `interval` makes a log row.
      sent: of `Coordinator.send`, when they were handed over.
    """

    iteration: int
    count: int
    interval: Interval
    metrics: Metrics | None
    failed: Array
    closes_row: bool
    sent: Array | None


class DispatchQueue:
    """Dispatches iterations of a runtime.

    Attributes:
      interval: metrics of the log interval that is open.
      logged_at: `ProcessStatus.trained_seconds` when the latest row was closed.
    """

    def __init__(
        self, runtime: Runtime, clock: Clock, coordinator: Coordinator, one_by_one: bool = False
    ) -> None:
        """Dispatches nothing yet; with `one_by_one` single iterations, each with its own metrics."""
        self._runtime = runtime
        self._clock = clock
        self._coordinator = coordinator
        self._several_at_once = runtime.one_program and not one_by_one
        self._one_by_one = one_by_one
        self._in_flight: deque[Dispatch] = deque()
        self._empty = self.interval = runtime.learning.empty_interval()
        self.logged_at = 0.0

    def restart(self, interval: Interval | None = None) -> None:
        """Begins with these metrics of an unfinished interval, or with none."""
        self.interval = interval or self._empty

    def fits(self, iteration: int, target: int) -> int:
        """The iteration up to which to dispatch from `iteration` on, at most `target`."""
        at_once = int(self._coordinator.status.iterations) if self._several_at_once else 1
        return min(target, iteration + at_once)

    def dispatch(
        self, state: TrainState, iteration: int, target: int, closes_row: bool
    ) -> tuple[TrainState, int]:
        """Hands over the iterations from `iteration` to `target`; `state` is donated.

        Returns (state, the iteration that it leads to): the arguments if a signal prevented a rollout.
        """
        count = target - iteration
        before = self.interval
        # The profile plugin splits time by the steps that are marked so.
        with self._clock.measure("train"), jax.profiler.StepTraceAnnotation("dispatch", step_num=target):
            try:
                own = self._empty if self._one_by_one else before
                state, interval, failed = self._runtime.advance(state, own, count)
            except Cancelled:
                return state, iteration
            sent = self._coordinator.send()
        metrics = interval.metrics if self._one_by_one else None
        if self._one_by_one:
            interval = _merge(before, interval, failed)
        self._in_flight.append(Dispatch(target, count, interval, metrics, failed, closes_row, sent))
        self.interval = self._empty if closes_row else interval
        if closes_row:
            self.logged_at = self._coordinator.status.trained_seconds
        return state, target

    def drain(self, at_most: int) -> Iterator[Dispatch]:
        """Waits until `at_most` dispatches are in flight; a failed one is the last, and none is left.

        Where each iteration needs the host it waits for all: a rollout after one that was not finite must
        not be learnt from, and the next but one needs the parameters that are being learnt now anyway.
        """
        while len(self._in_flight) > (at_most if self._several_at_once else 0):
            dispatch = self._in_flight.popleft()
            with self._clock.measure("train"):
                failed = bool(jax.device_get(dispatch.failed))
            if failed:
                # Whatever was dispatched after it began with the same state and ended there as well.
                self._in_flight.clear()
                self.interval = dispatch.interval
            else:
                self._clock.end_warm_up()
                self._coordinator.record_dispatch(dispatch.count, self._clock.lap("train"))
                self._coordinator.receive(dispatch.sent)
            yield dispatch


@jax.jit
def _merge(before: Interval, iteration: Interval, failed: Array) -> Interval:
    """The interval with one more iteration, unless that failed."""
    return jax.tree.map(lambda old, new: jnp.where(failed, old, new), before, before.add(iteration.metrics))
