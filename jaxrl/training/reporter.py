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
from jaxrl.training import nonfinite
from jaxrl.training.nonfinite import Finding
from jaxrl.training.progress import Progress
from jaxrl.training.runtime import Runtime

log = logging.getLogger(__name__)


class Reporter:
    """Writes rows with the seconds and resources of the run beside its metrics."""

    def __init__(self, config: Config, runtime: Runtime, clock: Clock, writer: Callable[[], Writer]) -> None:
        """`writer` is asked for when there is something to write."""
        self._config, self._runtime, self._clock, self._writer = config, runtime, clock, writer
        self._meter = resources.Meter(available_cores())
        self._begun_at = 0

    def begin(self, iteration: int) -> None:
        """Training continues from `iteration`: those before it took no time of this process."""
        self._begun_at = iteration

    def row(self, iteration: int, interval: Interval) -> Mapping[str, float]:
        """Writes and returns the metrics of the log interval up to `iteration`; waits for the devices."""
        with self._clock.measure("train"):  # includes writing: the devices work meanwhile
            steps = iteration * self._config.steps_per_iteration
            iterations = min(int(interval.iterations), iteration - self._begun_at)
            made = iterations * self._config.steps_per_iteration
            row = {"steps": steps, **reduction.row(interval.metrics)}
            pace = row["time/steps_per_second"] = self._clock.rate("train", made)
            row["time/seconds_per_iteration"] = self._config.steps_per_iteration / pace if pace else math.nan
            row |= self._clock.row() | self._meter.read() | self._runtime.shares()
            self._writer().write(steps, row)
        return row

    def evaluation(
        self, iteration: int, result: Result, row: dict[str, float], samples: dict[str, Any]
    ) -> Finding | None:
        """Writes the metrics and the single episodes of an evaluation; returns what is not finite in it."""
        steps, sampled = iteration * self._config.steps_per_iteration, self._config.evaluate.sample
        finding = nonfinite.in_evaluation(samples, iteration)
        self._writer().write(steps, row | self._clock.row())
        if finding is None:
            self._writer().histograms(steps, samples)
            mode = "sampled" if sampled else "greedy"
            log.info("step %d: %s return %.2f (std %.2f)", steps, mode, result.mean, result.std)
        elif self._config.nonfinite == "skip":
            log.warning("step %d: %s", steps, finding)
        return finding

    def checkpoint(self, steps: int) -> None:
        """A state has been saved."""
        self._writer().write(steps, {"checkpoint/step": steps} | self._clock.row())

    def summary(self, progress: Progress, steps_of_process: int, device: str) -> dict[str, Any]:
        """Returns what becomes summary.json.

        Args:
          progress: at the end; None stands for an evaluation that it lacks.
          steps_of_process: the steps since it was last resumed.
          device: for people.
        """
        trained, result = self._clock.seconds("train"), progress.evaluation_of_state
        best = None if progress.best_return is None else progress.best_at * self._config.steps_per_iteration
        return {
            "steps": progress.iteration * self._config.steps_per_iteration,
            "seconds": round(self._clock.total(), 3),
            "compile_seconds": round(self._clock.seconds("compile"), 3),
            "steps_per_second": round(steps_of_process / trained) if trained else 0,
            "eval_return": result and result.mean,
            "eval_return_std": result and result.std,
            "eval_episodes": result and result.episodes,
            "eval_mode": "sample" if self._config.evaluate.sample else "greedy",
            "best_return": progress.best_return,
            "best_step": best,
            "seed": self._config.seed,
            "environment": self._config.env.name,
            "device": device,
            "peak_memory_bytes": resources.peak_memory(),
            "versions": versions(),
        }
