"""The run of a pipeline, and its display: stage by stage, each skipped if it is done, and gates between."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TextIO

from jaxrl.config import text
from jaxrl.config.errors import ConfigError, RunError
from jaxrl.config.local_files import replace_text
from jaxrl.pipeline import gates, pipeline_report, stages
from jaxrl.pipeline.definition import PipelineDefinition
from jaxrl.pipeline.pipeline_folder import (
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    PipelineFolder,
    StageRecord,
    StepRecord,
)
from jaxrl.pipeline.plan import Planner
from jaxrl.pipeline.stages import PipelineStage, Step
from jaxrl.reporting.display.live_panel import LivePanel
from jaxrl.runs.child_process import ChildProcess
from jaxrl.runs.registry import GateClosed
from jaxrl.runs.signals import Interruption

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_SECONDS = 60.0  # between lines about a command, if the display cannot be redrawn
_TAIL = 4096  # bytes of a log in which its last line is looked for


class PipelineDisplay:
    """Shows the progress of a pipeline, and writes the same lines to its log."""

    def __init__(self, stages: Sequence[str], log: Path, stream: TextIO | None = None) -> None:
        """Takes the stages that are looked at, and the file of the log, which is continued."""
        self._stages = dict.fromkeys(stages, "")
        self._log = log
        self._current = ""
        self._line = ""
        self._started = self._shown = time.monotonic()
        self._panel = LivePanel(self._table, stream)
        self._panel.open()

    def _table(self) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, said in self._stages.items():
            line = said
            if name == self._current:
                line = f"{text.clock(time.monotonic() - self._started)}  {self._line}"
            grid.add_row(
                Text(name, style="bold" if name == self._current else ""),
                Text(line, no_wrap=True, overflow="ellipsis"),
            )
        return grid

    def begin(self, stage: str, line: str) -> None:
        """Shows that a stage begins."""
        self._current = stage
        self._line = ""
        self._started = self._shown = time.monotonic()
        self.message(f"[{list(self._stages).index(stage) + 1}/{len(self._stages)}] {stage}: {line}")

    def follow(self, line: str) -> None:
        """Takes the last line of the command that runs."""
        if line:
            self._line = self._panel.printable(line)
        if not self._panel.is_live and time.monotonic() - self._shown >= _LINE_SECONDS:
            self._shown = time.monotonic()
            said = self._line and f": {self._line}"
            self._panel.message(f"  {self._current} {text.clock(self._shown - self._started)}{said}")

    def end(self, stage: str, line: str) -> None:
        """Shows how a stage ended."""
        self._stages[stage] = self._panel.printable(line)
        self._current = ""
        self.message(f"[{list(self._stages).index(stage) + 1}/{len(self._stages)}] {stage}: {line}")

    def message(self, line: str) -> None:
        """Prints a line, and writes it to the log with the time."""
        self.log(line)
        self._panel.message(line)

    def log(self, line: str) -> None:
        """Writes a line to the log alone."""
        now = datetime.datetime.now().isoformat(sep=" ", timespec="seconds")
        with contextlib.suppress(OSError), self._log.open("a", encoding="utf-8") as log:
            log.write(f"{now} {text.one_line(line)}\n")

    def copy(self, output: Path) -> None:
        """Appends the output of a command to the log."""
        with contextlib.suppress(OSError), self._log.open("ab") as log:
            log.write(output.read_bytes())

    def close(self) -> None:
        self._panel.close()


class StageFailed(RunError):
    """A command of a stage failed. Its message names the reason and the log."""


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs the stages of a pipeline in its folder, which is locked; commands inherit the lock."""

    pipeline: PipelineDefinition
    folder: PipelineFolder
    planner: Planner
    display: PipelineDisplay
    interruption: Interruption
    lock: BinaryIO

    def run(self) -> None:
        """Runs what is to be run; a signal ends it once the command that runs has saved.

        Raises:
          StageFailed: a command failed; the stages before it stay as they are.
          GateClosed: a condition does not hold.
        """
        is_stale = False  # the report
        try:
            for name in self.planner.selected:
                stage = self.planner.stages[name]
                reason = self.planner.reason(stage)
                if reason:
                    self._stage(stage, reason)
                    is_stale = name != "report"
                else:
                    self.display.end(name, f"done before, {text.seconds(self.folder.records[name].seconds)}")
                if self.interruption.signum is not None:
                    return
                before = dict(self.folder.gates)
                self._gates(name)
                is_stale = is_stale or self.folder.gates != before
        except RunError:
            self._complete_report()
            raise
        if is_stale:
            self._complete_report()

    def _stage(self, stage: PipelineStage, reason: str) -> None:
        self.planner.require_inputs(stage)
        record = self.planner.continues(stage)
        self.display.begin(stage.name, f"{'continues' if record else 'starts'}, because {reason}")
        if record is None:
            self.folder.set_aside(stage.name)
            record = StageRecord(RUNNING, self.planner.inputs(stage))
        record = dataclasses.replace(record, state=RUNNING, problem="")
        self.folder.put(stage.name, record)
        self.folder.stage(stage.name).mkdir(exist_ok=True)
        for path, content in stage.texts.items():
            replace_text(path, content)
        for number, step in enumerate(stage.steps):
            if number < len(record.steps):
                continue  # It was done before the pipeline was interrupted.
            record = self._step(stage, step, record)
            if record.state == INTERRUPTED:
                return
        seconds = self._finish(stage)
        outputs: dict[str, str] = {}
        for name, output in stage.outputs.items():
            if (digest := output.digest()) is None:
                self._fail(stage, record, f"{output.path} was not written")
            outputs[name] = digest
        record = dataclasses.replace(record, state=DONE, outputs=outputs, seconds=record.seconds + seconds)
        self.folder.put(stage.name, record)
        self.display.end(stage.name, f"done in {text.seconds(record.seconds)}")

    def _step(self, stage: PipelineStage, step: Step, record: StageRecord) -> StageRecord:
        """Runs a command, and records it."""
        if step.starts_from:
            self.folder.clear(step.starts_from)
        log = self.folder.log(stage.name)
        began = time.monotonic()
        self.display.message(f"  {step.line}")
        part = log.with_suffix(".part")
        with self.interruption.defer():
            problem = self._child(step, part)
        self.display.copy(part)
        with log.open("ab") as whole:
            whole.write(f"$ {step.line}\n".encode(errors="backslashreplace") + part.read_bytes())
        seconds = time.monotonic() - began
        record = dataclasses.replace(record, seconds=record.seconds + seconds)
        if not problem:
            if step.result:
                self._keep_result(stage, step, part, record)
            done = StepRecord(step.words, round(seconds, 3))
            record = dataclasses.replace(record, steps=(*record.steps, done))
        if self.interruption.signum is not None and len(record.steps) < len(stage.steps):
            record = dataclasses.replace(record, state=INTERRUPTED)
            self.display.end(stage.name, f"interrupted by {self.interruption.name}")
        elif problem:
            self._fail(stage, record, problem)
        self.folder.put(stage.name, record)
        return record

    def _child(self, step: Step, output: Path) -> str:
        """Runs a command to its end, or until it has saved; returns why it failed, or ""."""
        process = ChildProcess(
            f"jaxrl {step.command}",
            "jaxrl",
            step.command,
            *step.arguments,
            log=output,
            locks=(self.lock,),
            say=self.display.follow,
        )
        return process.wait(self.interruption, lambda: self.display.follow(_last_line(output)))

    def _keep_result(self, stage: PipelineStage, step: Step, output: Path, record: StageRecord) -> None:
        """Copies the output that a command names to its place in the folder of the stage."""
        lines = output.read_text(errors="replace").splitlines()
        written = [line.removeprefix("written to ") for line in lines if line.startswith("written to ")]
        try:
            shutil.copyfile(written[-1], self.folder.stage(stage.name) / step.result)
        except (IndexError, OSError) as error:
            self._fail(stage, record, f"no result was written ({error})")

    def _fail(self, stage: PipelineStage, record: StageRecord, problem: str) -> NoReturn:
        record = dataclasses.replace(record, state=FAILED, problem=problem or "it failed")
        self.folder.put(stage.name, record)
        self.display.end(stage.name, "failed")  # The error, which is printed and logged once, has the reason.
        log = self.folder.log(stage.name)
        raise StageFailed(f"{stage.name} failed: {record.problem}; its log is {log}")

    def _finish(self, stage: PipelineStage) -> float:
        """Ends a stage with the pipeline's own part of it; returns the seconds that this took."""
        began = time.monotonic()
        work: dict[str, Callable[[], None]] = {"report": self._report, "deploy": self._keep_evaluation}
        if stage.name in work:
            try:
                work[stage.name]()
            except ConfigError as error:
                self._fail(stage, self.folder.records[stage.name], str(error))
        self.folder.log(stage.name).with_suffix(".part").unlink(missing_ok=True)
        return time.monotonic() - began

    def _report(self) -> None:
        pipeline_report.write(self.pipeline, self.folder, self.pipeline.sections["report"].settings.pdf)

    def _complete_report(self) -> None:
        """Writes the report again, with later stages, or the reason why there are none."""
        record = self.folder.records.get("report")
        if "report" not in self.planner.selected or (record and record.state == FAILED):
            return
        try:
            self._report()
        except ConfigError as error:
            self.display.message(f"  no report: {error}")
            return
        if record and record.state == DONE:
            found = self.planner.stages["report"].outputs
            outputs = {name: output.digest() or "" for name, output in found.items()}
            self.folder.put("report", dataclasses.replace(record, outputs=outputs))
        else:
            self.display.message(f"  so far: {self.folder.root / 'report.html'}")

    def _keep_evaluation(self) -> None:
        """Keeps the evaluation beside an exported model, for the gate of the next one."""
        source = self.folder.stage("evaluate") / "episodes.json"
        exported = self.pipeline.sections["deploy"].command == "export"
        if exported and "evaluate" in self.planner.stages and source.exists():
            replace_text(stages.model_folder(self.pipeline) / "evaluation.json", source.read_text())

    def _gates(self, stage: str) -> None:
        mine = [gate for gate in self.pipeline.gates if gate.stage == stage]
        if not mine:
            return
        found = gates.results_of(stage, self.folder.path)
        deployed = gates.deployed_evaluation(stages.model_folder(self.pipeline))
        outcomes = [gate.check(found, deployed) for gate in mine]
        self.folder.put_gates(outcomes)
        for outcome in outcomes:
            self.display.message(f"  {outcome}")
        if failed := [outcome for outcome in outcomes if not outcome.passed]:
            raise GateClosed(str(failed[0]))


def _last_line(file: Path) -> str:
    """The last line of a file that is not empty, printable; "" if there is none."""
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return text.one_line(next((line for line in reversed(lines) if line.strip()), ""))
