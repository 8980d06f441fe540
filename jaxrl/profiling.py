"""Traces a window of iterations for the TensorBoard profile plugin."""

from __future__ import annotations

import logging
import os

import jax

from jaxrl.types import PyTree

_log = logging.getLogger(__name__)


class TraceWindow:
    """Traces `num_iterations` iterations from the first call at or after `start_iteration`.

    A trace that fails is reported and given up; it never stops training. The profile plugin finds the
    trace under `<folder>/plugins/profile` when TensorBoard is pointed at `folder`.
    """

    def __init__(self, folder: str | os.PathLike[str], start_iteration: int, num_iterations: int) -> None:
        """Prepares a window; `num_iterations` 0 traces nothing."""
        self._folder = os.fspath(folder)
        self._start = start_iteration
        self._num_iterations = num_iterations
        self._stop: int | None = None
        self._over = num_iterations <= 0

    def step(self, iteration: int, pending: PyTree = None) -> None:
        """Opens or ends the trace where it is due.

        Args:
          iteration: the iteration about to be dispatched. Several may share a dispatch: the trace then
            starts and ends at the next dispatch.
          pending: results of the work in flight; waited for at both ends of the trace and only there, so
            that it holds whole iterations although dispatch is asynchronous.
        """
        if self._over:
            return
        if self._stop is None and iteration >= self._start:
            jax.block_until_ready(pending)
            self._begin(iteration)
        elif self._stop is not None and iteration >= self._stop:
            jax.block_until_ready(pending)
            self.close()

    def close(self) -> None:
        """Ends a trace that is still open and writes it; there will be no other."""
        running = self._stop is not None and not self._over
        self._over = True
        if not running:
            return
        try:
            jax.profiler.stop_trace()
            _log.info("wrote a trace of %d iterations to %s", self._num_iterations, self._folder)
        except (RuntimeError, OSError) as error:
            _log.warning("the trace could not be written: %s", error)

    def _begin(self, iteration: int) -> None:
        try:
            jax.profiler.start_trace(self._folder)
            self._stop = iteration + self._num_iterations
        except (RuntimeError, OSError) as error:
            self._over = True
            _log.warning("no trace: the profiler did not start: %s", error)
