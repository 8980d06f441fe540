"""Runs the cells of an experiment: pretraining, training, evaluation, export, each a process of its own."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxrl.config import Config, ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.config.errors import RunError
from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan
from jaxrl.experiments.results import Measured, of_suite, read_results, steps_to, write_results
from jaxrl.experiments.stages import EXPORT, LATENCY, PRETRAIN, SUITES, commands
from jaxrl.runs import child_process
from jaxrl.runs.child_ending import Stopping, child_environment, reason
from jaxrl.runs.clones import failed_check
from jaxrl.runs.device_share import DeviceShare
from jaxrl.runs.executor import PlannedRun, ProcessExecutor
from jaxrl.runs.signals import Interruption

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1
_LATENCY = "inference_benchmark.json"


class CellFailure(Exception):
    """A cell cannot go on. The message is one line."""


class CellInterruption(Exception):
    """A signal has come: the cell goes on another time."""


@dataclass(frozen=True)
class CellRunner:
    """Runs a cell, one stage after the other.

    Attributes:
      plan: of the experiment.
      cell: the cell.
      share: of the machine, for its processes.
      interruption: a signal, after which its process saves and nothing more is started.
      say: is told what happens, line by line.
    """

    plan: ExperimentPlan
    cell: ExperimentCell
    share: DeviceShare
    interruption: Interruption
    say: Callable[[str], object]

    def run(self) -> str | None:
        """Runs it to its end, from where it was.

        Returns:
          Why it failed, "" if it did not; None if it was interrupted.
        """
        cell = self.cell
        if read_results(cell) is not None:
            self.say(f"{cell.name}: finished before")
            return ""
        started = time.monotonic()
        self.say(f"{cell.name}: starts")
        try:
            found = self._stages()
            write_results(cell, found)
            self._copy()
        except CellInterruption:
            return None
        except (CellFailure, ConfigError, RunError, OSError) as failure:
            self.say(f"{cell.name}: failed: {failure}")
            return str(failure)
        rate = found.columns["success"]
        minutes = (time.monotonic() - started) / 60
        self.say(f"{cell.name}: success {100 * rate:.0f}% on test levels, {minutes:.1f} minutes")
        return ""

    def _stages(self) -> Measured:
        cell = self.cell
        without = self._pretrain() if cell.pretrains else ""
        config = self.plan.config(cell, initialized=cell.pretrains and not without)
        self._train(config)
        for stage in (*SUITES, LATENCY, EXPORT):
            self._command(stage)
        exported = cell.folder / "export" / "stablehlo"
        shutil.make_archive(str(cell.folder / "final_model"), "zip", exported)
        return self._measure(without)

    def _train(self, config: Config) -> None:
        """Trains, once a process is gone that an experiment has left here that was killed."""
        run = PlannedRun(self.cell.name, config, self.cell.folder)
        attempts = 0
        level = f"--log-level={self.plan.options.trace_level}"
        executor = ProcessExecutor(jobs=1, say=self.say, shares=(self.share,), flags=(level,))
        while not executor.start([run]):
            attempts += 1
            if attempts == 2:  # The first may fail because a process that starts beside it has the lock too.
                self.say(f"{run.name}: another process still trains it, and is waited for")
            self._require_going_on()
            time.sleep(_POLL_SECONDS)
        while not (endings := executor.poll()):
            if self.interruption.signum is not None:
                executor.close()
                break
            time.sleep(_POLL_SECONDS)
        self._require_going_on()
        if why := endings[0].reason:
            raise CellFailure(why)

    def _require_going_on(self) -> None:
        if self.interruption.signum is not None:
            raise CellInterruption

    def _pretrain(self) -> str:
        """Clones demonstrations; returns why the clone is not started from, "" if it is."""
        try:
            self.plan.write_pretrain_config(self.cell)
            self._command(PRETRAIN)
            if failed_check(str(self.cell.clone)):
                raise CellFailure("it is no better than a policy without observations")
        except CellFailure as failure:
            warning = f"warning: trained from scratch, since the clone failed: {failure}"
            self.say(f"{self.cell.name}: {warning}")
            return str(failure)
        return ""

    def _copy(self) -> None:
        """Completes the copy in the bucket by what has come after training."""
        target = self.plan.copy_of(self.cell)
        if not target:
            return
        try:
            self._run("copy", ["sync", str(self.cell.folder), target])
        except CellFailure as failure:
            again = f"jaxrl sync {self.cell.folder} {target}"
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

    def _command(self, stage: str) -> None:
        self._run(stage, commands(self.plan, self.cell)[stage])

    def _run(self, stage: str, arguments: Sequence[str]) -> None:
        """Runs `jaxrl ARGUMENTS` as a child process, whose output goes to a file beside the run folder.

        Raises:
          CellFailure: it failed.
          CellInterruption: a signal came.
        """
        cell = self.cell
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        output = cell.folder.with_name(f"{cell.folder.name}_{stage}.log")
        _log.debug("%s: jaxrl %s", cell.name, " ".join(arguments))
        with output.open("wb") as stream:
            process = subprocess.Popen(
                child_process.command("jaxrl", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=child_environment() | self.share.environment(),
                start_new_session=True,
            )
        self.share.bind(process.pid)
        stopping = None
        while process.poll() is None:
            if stopping is None and self.interruption.signum is not None:
                stopping = Stopping(process, f"{cell.name}: {stage}")
            elif stopping is not None:
                stopping.watch(self.say)
            time.sleep(_POLL_SECONDS)
        self._require_going_on()
        if why := reason(process.returncode, output):
            raise CellFailure(f"{stage}: {why}")
