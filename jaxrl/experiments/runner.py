"""Runs the cells of an experiment: pretraining, training, evaluation, export, each a process of its own."""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

from jaxrl.config import ConfigError
from jaxrl.config.data_files import read_object
from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan
from jaxrl.experiments.results import Measured, of_suite, read_results, steps_to, write_results
from jaxrl.runs import child_process
from jaxrl.runs.child_ending import Stopping, child_environment, reason
from jaxrl.runs.executor import PlannedRun, ProcessExecutor, run_all
from jaxrl.runs.signals import Interruption

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1
_LATENCY = "inference_benchmark.json"


class CellFailure(Exception):
    """A cell cannot go on. The message is one line."""


class CellRunner:
    """Runs one cell after the other."""

    def __init__(
        self, plan: ExperimentPlan, interruption: Interruption, say: Callable[[str], object]
    ) -> None:
        """Takes the plan; `say` is told what happens, line by line."""
        self._plan, self._interruption, self._say = plan, interruption, say

    def run(self, cell: ExperimentCell) -> str:
        """Runs a cell to its end, from where it was; returns why it failed, "" if it did not.

        A cell that was interrupted has failed by no fault of its own: see `Interruption.signum`.
        """
        if read_results(cell) is not None:
            self._say(f"{cell.name}: finished before")
            return ""
        started = time.monotonic()
        self._say(f"{cell.name}: starts")
        try:
            found = self._stages(cell)
        except CellFailure as failure:
            if self._interruption.signum is None:
                self._say(f"{cell.name}: failed: {failure}")
            return str(failure)
        write_results(cell, found)
        rate = found.columns["success"]
        minutes = (time.monotonic() - started) / 60
        self._say(f"{cell.name}: success {100 * rate:.0f}% on test levels, {minutes:.1f} minutes")
        return ""

    def _stages(self, cell: ExperimentCell) -> Measured:
        without = self._pretrain(cell) if cell.pretrains else ""
        config = self._plan.config(cell, initialized=cell.pretrains and not without)
        executor = ProcessExecutor(jobs=1, say=self._say)
        reasons = run_all([PlannedRun(cell.name, config, cell.folder)], executor, self._interruption)
        why = reasons.get(cell.name, "it was interrupted")
        if why or self._interruption.signum is not None:
            raise CellFailure(why or "it was interrupted")
        trust = ["--trust"] if ":" in cell.architecture else []
        for part in ("test", "train"):
            suite = f"--suite={self._plan.suite(part)}"
            self._command(cell, f"evaluate-{part}", ["evaluate", str(cell.folder), suite, *trust])
        benchmark = ["inference-benchmark", f"--workdir={cell.folder}", "--batch=1", *trust]
        self._command(cell, "latency", benchmark)
        self._export(cell, trust)
        return self._measured(cell, without)

    def _pretrain(self, cell: ExperimentCell) -> str:
        """Clones demonstrations; returns why the clone is not started from, "" if it is."""
        try:
            self._command(cell, "pretrain", self._plan.pretrain_arguments(cell))
        except CellFailure as failure:
            if self._interruption.signum is not None:
                raise
            self._say(f"{cell.name}: warning: trained from scratch, since the clone failed: {failure}")
            return str(failure)
        return ""

    def _export(self, cell: ExperimentCell, trust: Sequence[str]) -> None:
        """Writes final_model.zip, the policy as StableHLO."""
        folder = cell.folder / "export" / "stablehlo"
        self._command(cell, "export", ["export", str(cell.folder), "--format=stablehlo", *trust])
        shutil.make_archive(str(cell.folder / "final_model"), "zip", folder)

    def _measured(self, cell: ExperimentCell, clone: str) -> Measured:
        try:
            steps, seconds = steps_to(cell.folder, self._plan.options.threshold)
            acting = read_object(cell.folder / _LATENCY)["results"][0]
            return Measured(
                test=of_suite(cell.folder, "test"),
                train=of_suite(cell.folder, "train"),
                steps_to_threshold=steps,
                p50_ms=acting["p50_ms"],
                parameters=acting["parameters"],
                seconds=seconds,
                clone=clone,
            )
        except (ConfigError, OSError, ValueError, KeyError, IndexError) as error:
            raise CellFailure(f"its results cannot be read: {error}") from error

    def _command(self, cell: ExperimentCell, stage: str, arguments: Sequence[str]) -> None:
        """Runs `jaxrl ARGUMENTS` as a child process, whose output goes to a file beside the run folder.

        Raises:
          CellFailure: it failed, or was interrupted.
        """
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        output = cell.folder.with_name(f"{cell.folder.name}_{stage}.log")
        _log.debug("%s: jaxrl %s", cell.name, " ".join(arguments))
        with output.open("wb") as stream:
            process = subprocess.Popen(
                child_process.command("jaxrl", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                start_new_session=True,
            )
        stopping = None
        while process.poll() is None:
            if stopping is None and self._interruption.signum is not None:
                stopping = Stopping(process, f"{cell.name}: {stage}")
            elif stopping is not None:
                stopping.watch(self._say)
            time.sleep(_POLL_SECONDS)
        if self._interruption.signum is not None:
            raise CellFailure("it was interrupted")
        if why := reason(process.returncode, output):
            raise CellFailure(f"{stage}: {why}")
