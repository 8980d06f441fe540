"""Reports of a run: rows of metrics while it trains, a summary at the end."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from jaxrl.config import Config, versions
from jaxrl.evaluation.during_training import Evaluation
from jaxrl.metrics import reduction, resources
from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.cpu_devices import available_cores
from jaxrl.reporting.writers import Writer
from jaxrl.runs.commits import commits, origin
from jaxrl.training import nonfinite
from jaxrl.training.assembly import Assembly
from jaxrl.training.nonfinite import Finding
from jaxrl.training.run_state import RunState

log = logging.getLogger(__name__)


class Reporter:
    """Writes rows with the seconds and resources of the run beside its metrics."""

    def __init__(self, assembly: Assembly, run: RunState, writer: Writer) -> None:
        """Begins to measure the use of the machine."""
        self._config: Config = assembly.config
        self._run = run
        self._runtime = assembly.runtime
        self._clock = assembly.clock
        self._writer = writer
        self._meter = resources.Meter(available_cores())

    def row(self, iteration: int, interval: Interval) -> Mapping[str, float]:
        """Writes and returns the metrics of the log interval up to `iteration`; waits for the devices."""
        with self._clock.measure("train"):  # includes writing: the devices work meanwhile
            steps = iteration * self._config.steps_per_iteration
            # Those before the first iteration of this process took none of its time.
            iterations = min(int(interval.iterations), iteration - self._run.first_iteration)
            made = iterations * self._config.steps_per_iteration
            row = {"steps": steps, **reduction.row(interval.metrics)}
            pace = row["time/steps_per_second"] = self._clock.rate("train", made)
            row["time/seconds_per_iteration"] = self._config.steps_per_iteration / pace if pace else math.nan
            row |= self._clock.row() | self._meter.read() | self._runtime.time_shares()
            if self._config.stages:
                row["stage"] = self._run.progress.stage + 1
            self._writer.write(steps, row)
            tasks = self._runtime.learning.per_device.tasks
            of_row = int(interval.iterations) * self._config.steps_per_iteration
            if tasks is not None and (event := tasks.event(row, of_row)):
                log.info("step %d: curriculum: %s", steps, event)
        return row

    def evaluation(self, iteration: int, evaluation: Evaluation) -> Finding | None:
        """Writes the metrics and the single episodes of an evaluation; returns what is not finite in it."""
        steps = iteration * self._config.steps_per_iteration
        finding = nonfinite.in_evaluation(evaluation.samples, iteration)
        self._writer.write(steps, {**evaluation.row, **self._clock.row()})
        if finding is None:
            self._writer.histograms(steps, evaluation.samples)
            for mode, result in evaluation.results.items():
                log.info("step %d: %s return %.2f (std %.2f)", steps, mode, result.mean, result.std)
            if cut := evaluation.deciding.cut:
                log.warning("step %d: %s, and their returns are of what was played", steps, cut)
        elif self._config.nonfinite == "skip":
            log.warning("step %d: %s", steps, finding)
        return finding

    def untrained(self) -> None:
        """Says so if the run ends without an update: its policy is the first one, whatever its returns."""
        if int(self._run.state.learner.updates):
            return
        config = self._config
        begins = config.learner.idle_iterations(config.env.rows) * config.steps_per_iteration
        why = f": learning begins after step {begins:,}" if begins >= self._run.steps else ""
        line = f"no update was made in {self._run.steps:,} {config.clock}, the policy is untrained{why}"
        log.info(line)
        self._writer.message(line)

    def checkpoint(self) -> None:
        """Writes that the state is saved."""
        steps = self._run.steps
        self._writer.write(steps, {"checkpoint/step": steps} | self._clock.row())

    def short_summary(self) -> dict[str, Any]:
        """Returns what is known of a run that was interrupted."""
        return {"steps": self._run.steps, "seconds": round(self._clock.total(), 3)}

    def summary(self, device: str) -> dict[str, Any]:
        """Returns the content of summary.json, None for an evaluation that the final state lacks."""
        progress = self._run.progress
        trained = self._clock.seconds("train")
        result = progress.evaluation_of_state
        best = None if progress.best_return is None else progress.best_at * self._config.steps_per_iteration
        return {
            **self.short_summary(),
            "compile_seconds": round(self._clock.seconds("compile"), 3),
            "steps_per_second": round(self._run.steps_of_process / trained) if trained else 0,
            "eval_return": result and result.mean,
            "eval_return_std": result and result.std,
            "eval_episodes": result and result.episodes,
            "eval_cut_off": result and result.unfinished,
            "eval_mode": result and result.mode,
            "eval_returns": progress.latest_returns if result else None,
            "best_return": progress.best_return,
            "best_step": best,
            "seed": self._config.seed,
            "environment": self._config.env.name,
            "device": device,
            "peak_memory_bytes": resources.peak_memory(),
            "versions": versions(),
            "commits": commits(),
            **origin(),
        }
