"""Keeps the devices busy: dispatches of iterations, a few in flight, their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np

from jaxrl.metrics.clock import Clock
from jaxrl.parallel.coordination import Agreement
from jaxrl.types import Array, TrainState

# Programs queued on the devices at once: one runs while the metrics of the one before are read.
MAX_IN_FLIGHT = 2

Sums = dict[str, Array]


@dataclass(frozen=True)
class Dispatch:
    """`count` iterations that end at `iteration`, and arrays that are ready when these are.

    `failed`: the loop ended before an iteration that was not finite. `closes_row`: `sums` make a log row.
    `told`: of `Agreement.tell`, when it was handed over.
    """

    iteration: int
    count: int
    sums: Sums
    failed: Array
    closes_row: bool
    told: Array | None


class Pipeline:
    """Dispatches a compiled `Program.repeat`.

    Attributes:
      train: the compiled program, (state, sums, iterations) -> (state, sums, failed); set before dispatching.
      sums: metrics of the log interval that is open.
    """

    train: Callable[[TrainState, Sums, np.int32], tuple[TrainState, Sums, Array]]

    def __init__(self, empty: Sums, clock: Clock, agreement: Agreement) -> None:
        """`empty` are the sums over no iterations; `clock` learns what training takes."""
        self._empty = empty
        self._clock = clock
        self._agreement = agreement
        self._in_flight: deque[Dispatch] = deque()
        self.sums = empty

    def fits(self, iteration: int, target: int) -> int:
        """The iteration up to which to dispatch from `iteration` on, at most `target`."""
        return min(target, iteration + self._agreement.iterations)

    def dispatch(
        self, state: TrainState, iteration: int, target: int, closes_row: bool
    ) -> tuple[TrainState, int]:
        """Hands over the iterations from `iteration` to `target`; `state` is donated.

        Returns:
          (state, the iteration that it leads to).
        """
        # The profile plugin splits time by the steps that are marked so.
        with self._clock.measure("train"), jax.profiler.StepTraceAnnotation("dispatch", step_num=target):
            count = target - iteration
            state, sums, failed = self.train(state, self.sums, np.int32(count))
            told = self._agreement.tell()
        self._in_flight.append(Dispatch(target, count, sums, failed, closes_row, told))
        self.sums = self._empty if closes_row else sums
        return state, target

    def finished(self, at_most: int) -> Iterator[Dispatch]:
        """Waits until `at_most` dispatches are in flight; a failed one is the last, and none is left."""
        while len(self._in_flight) > at_most:
            dispatch = self._in_flight.popleft()
            with self._clock.measure("train"):
                failed = bool(dispatch.failed)
            if failed:
                # Whatever was dispatched after it began with the same state and ended there as well.
                self._in_flight.clear()
                self.sums = dispatch.sums
            else:
                self._agreement.took(dispatch.count, self._clock.lap("train"))
                self._agreement.hear(dispatch.told)
            yield dispatch
