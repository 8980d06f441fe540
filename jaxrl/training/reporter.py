"""What a run reports: rows of metrics while it trains, a summary at the end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from jaxrl.config import Config, versions
from jaxrl.evaluation.result import Result
from jaxrl.metrics import reduction, resources
from jaxrl.metrics.clock import Clock
from jaxrl.metrics.reduction import Interval
from jaxrl.metrics.writers import Writer
from jaxrl.parallel.cpu_devices import available_cores
from jaxrl.training.runtime import Runtime

log = logging.getLogger(__name__)


class Reporter:
    """Writes rows with the seconds and resources of the run beside its metrics."""

    def __init__(self, config: Config, runtime: Runtime, clock: Clock, writer: Callable[[], Writer]) -> None:
        """`writer` is asked for when there is something to write."""
        self._config, self._runtime, self._clock, self._writer = config, runtime, clock, writer
        self._meter = resources.Meter(available_cores())

    def row(self, iteration: int, interval: Interval) -> Mapping[str, float]:
        """Writes and returns the metrics of the log interval up to `iteration`; waits for the devices."""
        with self._clock.measure("train"):  # includes writing: the devices work meanwhile
            steps = iteration * self._config.steps_per_iteration
            made = int(interval.iterations) * self._config.steps_per_iteration
            row = {"steps": steps, **reduction.row(interval.metrics)}
            pace = row["time/steps_per_second"] = self._clock.rate("train", made)
            row["time/seconds_per_iteration"] = self._config.steps_per_iteration / pace if pace else math.nan
            row |= self._clock.row() | self._meter.read() | self._runtime.shares()
            self._writer().write(steps, row)
        return row

    def evaluation(self, steps: int, result: Result, row: dict[str, float], samples: dict[str, Any]) -> None:
        """The metrics and the single episodes of an evaluation."""
        self._writer().write(steps, row | self._clock.row())
        self._writer().histograms(steps, samples)
        log.info("step %d: greedy return %.2f (std %.2f)", steps, result.mean, result.std)

    def checkpoint(self, steps: int) -> None:
        """A state has been saved."""
        self._writer().write(steps, {"checkpoint/step": steps} | self._clock.row())

    def summary(self, result: Result, steps: int, steps_of_process: int, device: str) -> dict[str, Any]:
        """Returns what becomes summary.json.

        Args:
          result: the evaluation of the final state.
          steps: of the whole run.
          steps_of_process: the steps since it was last resumed.
          device: for people.
        """
        trained = self._clock.seconds("train")
        return {
            "steps": steps,
            "seconds": round(self._clock.total(), 3),
            "compile_seconds": round(self._clock.seconds("compile"), 3),
            "steps_per_second": round(steps_of_process / trained) if trained else 0,
            "eval_return": result.mean,
            "eval_return_std": result.std,
            "eval_episodes": result.episodes,
            "seed": self._config.seed,
            "environment": self._config.env.name,
            "device": device,
            "peak_memory_bytes": resources.peak_memory(),
            "versions": versions(),
        }
