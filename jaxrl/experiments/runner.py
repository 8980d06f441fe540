"""Runs the cells of an experiment: pretraining, training, evaluation, export, each a process of its own."""

from __future__ import annotations

import contextvars
import logging
import queue
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import BinaryIO

from jaxrl.config import Config, ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.config.errors import RunError
from jaxrl.config.listing import config_file
from jaxrl.experiments.cells import EXPORT, LATENCY, PRETRAIN, SUITES, ExperimentCell, ExperimentPlan
from jaxrl.experiments.experiment_options import ExperimentOptions
from jaxrl.experiments.results import Measured, of_suite, read_results, steps_to, write_results
from jaxrl.runs.child_process import POLL_SECONDS, ChildProcess, DeviceShare, shares_of, take_lock
from jaxrl.runs.clones import failed_check
from jaxrl.runs.executor import PlannedRun, visible_gpus
from jaxrl.runs.signals import Interruption

_log = logging.getLogger(__name__)
_LATENCY = "inference_benchmark.json"


class CellFailure(Exception):
    """A cell cannot go on. The message is one line."""


class CellInterruption(Exception):
    """A signal has come: the cell resumes another time."""


@dataclass(frozen=True)
class CellRunner:
    """Runs a cell, one stage after the other; after a signal its process saves, and no more is started."""

    plan: ExperimentPlan
    cell: ExperimentCell
    share: DeviceShare
    interruption: Interruption
    say: Callable[[str], object]

    def run(self) -> str | None:
        """Runs it on to its end: why it failed, "" if it did not, None if it was interrupted."""
        cell = self.cell
        if read_results(cell) is not None:
            self.say(f"{cell.name}: finished before")
            return ""
        started = time.monotonic()
        self.say(f"{cell.name}: starts")
        try:
            with self._lock() as lock:
                found = self._stages(lock)
                write_results(cell, found)
                self._copy(lock)
        except CellInterruption:
            return None
        except (CellFailure, ConfigError, RunError, OSError) as failure:
            self.say(f"{cell.name}: failed: {failure}")
            return str(failure)
        rate = found.columns["success"]
        minutes = (time.monotonic() - started) / 60
        self.say(f"{cell.name}: success {100 * rate:.0f}% on test levels, {minutes:.1f} minutes")
        return ""

    def _lock(self) -> BinaryIO:
        """Locks the cell, once a process is gone that an experiment has left here that was killed."""
        self.cell.folder.parent.mkdir(parents=True, exist_ok=True)
        attempts = 0
        while (lock := take_lock(self.cell.folder.with_suffix(".lock"))) is None:
            attempts += 1
            if attempts == 2:  # The first may fail because a process that starts beside it has the lock too.
                self.say(f"{self.cell.name}: another process still trains it, and is waited for")
            self._require_going_on()
            time.sleep(POLL_SECONDS)
        return lock

    def _stages(self, lock: BinaryIO) -> Measured:
        cell = self.cell
        without = self._pretrain(lock) if cell.pretrains else ""
        config = self.plan.config(cell, initialized=cell.pretrains and not without)
        self._train(config, lock)
        for stage in (*SUITES, LATENCY, EXPORT):
            self._command(stage, lock)
        exported = cell.folder / "export" / "stablehlo"
        shutil.make_archive(str(cell.folder / "final_model"), "zip", exported)
        return self._measure(without)

    def _train(self, config: Config, lock: BinaryIO) -> None:
        run = PlannedRun(self.cell.name, config, self.cell.folder)
        level = f"--log-level={self.plan.options.trace_level}"
        self._wait(run.start(lock, self.share, self.say, level))

    def _require_going_on(self) -> None:
        if self.interruption.signum is not None:
            raise CellInterruption

    def _pretrain(self, lock: BinaryIO) -> str:
        """Clones demonstrations; returns why the clone is not started from, "" if it is."""
        try:
            config = config_file(self.plan.config(self.cell, with_suite=False))
            self.cell.clone.with_suffix(".py").write_text(config + "\n")
            self._command(PRETRAIN, lock)
            if failed_check(str(self.cell.clone)):
                raise CellFailure("it is no better than a policy without observations")
        except CellFailure as failure:
            warning = f"warning: trained from scratch, since the clone failed: {failure}"
            self.say(f"{self.cell.name}: {warning}")
            return str(failure)
        return ""

    def _copy(self, lock: BinaryIO) -> None:
        """Completes the copy in the bucket with files from after training."""
        if not (target := self.plan.copy_of(self.cell)):
            return
        try:
            self._command("copy", lock, ["sync", str(self.cell.folder), target])
        except CellFailure as failure:
            again = shlex.join(["jaxrl", "sync", str(self.cell.folder), target])
            self.say(
                f"{self.cell.name}: warning: its copy is not complete, `{again}` completes it: {failure}"
            )

    def _measure(self, clone: str) -> Measured:
        cell = self.cell
        try:
            steps, seconds = steps_to(cell.folder, self.plan.options.threshold)
            acting = read_object(cell.folder / _LATENCY)["results"][0]
            actions, test = of_suite(cell.folder, "test")
            return Measured(
                test=test,
                train=of_suite(cell.folder, "train")[1],
                actions=actions,
                steps_to_threshold=steps,
                p50_ms=acting["p50_ms"],
                p50_spread_ms=acting["p50_spread_ms"],
                parameters=acting["parameters"],
                seconds=seconds,
                clone=clone,
            )
        except (ConfigError, OSError, ValueError, KeyError, IndexError) as error:
            raise CellFailure(f"its results cannot be read: {error}") from error

    def _command(self, stage: str, lock: BinaryIO, arguments: Sequence[str] = ()) -> None:
        """Runs `jaxrl ARGUMENTS`, by default a stage's; its output goes to a file beside the run folder."""
        cell = self.cell
        arguments = arguments or self.plan.commands(cell)[stage]
        output = cell.folder.with_name(f"{cell.folder.name}_{stage}.log")
        _log.debug("%s: jaxrl %s", cell.name, " ".join(arguments))
        child = ChildProcess(
            f"{cell.name}: {stage}",
            "jaxrl",
            *arguments,
            log=output,
            locks=(lock,),
            share=self.share,
            say=self.say,
        )
        self._wait(child, f"{stage}: ")

    def _wait(self, child: ChildProcess, prefix: str = "") -> None:
        why = child.wait(self.interruption)
        self._require_going_on()
        if why:
            raise CellFailure(f"{prefix}{why}")


Ended = Callable[[ExperimentCell, str], object]


def jobs_of(options: ExperimentOptions, gpus: int) -> int:
    """The number of cells that run at the same time, of as many as there may be.

    With --jobs that many; else, with --num-devices GPUs for each, as many as have their own GPUs;
    else one, which takes all.
    """
    if options.jobs is not None:
        return options.jobs
    return max(1, gpus // options.num_devices) if options.num_devices else 1


def run_cells(
    plan: ExperimentPlan, interruption: Interruption, say: Callable[[str], object], ended: Ended
) -> None:
    """Runs all cells; each has a thread here that waits for its processes.

    Args:
      say: is called with each line of progress, from any thread.
      ended: is called in this thread with every ended cell and the reason why it failed, "" if it did not.
    """
    gpus = visible_gpus()
    cells = plan.cells
    jobs = min(jobs_of(plan.options, len(gpus)), len(cells))
    each = plan.options.num_devices or max(1, len(gpus) // jobs)
    free: queue.SimpleQueue[DeviceShare] = queue.SimpleQueue()
    for share in shares_of(jobs, gpus, each):
        free.put(share)

    def run(cell: ExperimentCell) -> str | None:
        if interruption.signum is not None:
            return None
        share = free.get()
        try:
            return CellRunner(plan, cell, share, interruption, say).run()
        finally:
            free.put(share)

    with ThreadPoolExecutor(jobs, thread_name_prefix="cell") as pool:
        # Threads do not inherit the level of the log.
        started = {pool.submit(contextvars.copy_context().run, run, cell): cell for cell in cells}
        try:
            for future in as_completed(started):
                if (why := future.result()) is not None:
                    ended(started[future], why)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
