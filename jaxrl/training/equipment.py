"""The equipment of a stage: its programs, and what saves, dispatches and starts with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxrl.config import Config
from jaxrl.metrics.tracing import Traces
from jaxrl.programs.hyperparameters import program_shape
from jaxrl.programs.runtime import Runtime
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.reporting.writers import Writer
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.callbacks import Notifier
from jaxrl.training.checkpoints import RunCheckpoints
from jaxrl.training.loop import TrainingLoop
from jaxrl.training.pipeline import Pipeline
from jaxrl.training.plan import TrainingPlan
from jaxrl.training.recovery import Recovery
from jaxrl.training.reporter import Reporter
from jaxrl.training.run_state import RunState
from jaxrl.training.saver import StateSaver
from jaxrl.training.schedule import Schedule
from jaxrl.training.start import Start


@dataclass(frozen=True)
class Equipment:
    """Everything that one stage of a run is trained with; without stages the run is one.

    Attributes:
      stage: its number.
      config: of the stage.
      run: the run that is trained.
      assembly: compiled programs and what belongs to them; stages of one shape share them.
      learning: of the stage, with its configuration.
      checkpoints: the run's.
      pipeline: dispatches iterations.
      saver: writes checkpoints.
      start: finds where a run begins.
    """

    stage: int
    config: Config
    run: RunState
    assembly: Assembly
    learning: ShardedLearning
    checkpoints: RunCheckpoints
    pipeline: Pipeline
    saver: StateSaver
    start: Start

    @classmethod
    def of(
        cls,
        plan: TrainingPlan,
        stage: int,
        assembly: Assembly,
        run: RunState,
        folder: RunFolder | None,
        saved_at: int = -1,
        one_by_one: bool = False,
    ) -> Equipment:
        """The equipment of a stage.

        Args:
          plan: the stages.
          stage: its number.
          assembly: of its programs.
          run: the run that is trained.
          folder: where checkpoints go; None keeps nothing.
          saved_at: the iteration that is saved already; -1: none.
          one_by_one: dispatch single iterations.
        """
        config = plan.configs[stage]
        learning = assembly.runtime.learning
        clock = assembly.clock
        if plan.stages:
            learning = learning.with_config(config)
        checkpoints = RunCheckpoints(folder, learning, saved_at=saved_at)
        pipeline = Pipeline(assembly.runtime, clock, assembly.coordinator, one_by_one=one_by_one)
        return cls(
            stage=stage,
            config=config,
            run=run,
            assembly=assembly,
            learning=learning,
            checkpoints=checkpoints,
            pipeline=pipeline,
            saver=StateSaver(run, checkpoints, pipeline, clock, assembly.coordinator),
            start=Start(config, learning, checkpoints),
        )

    @property
    def runtime(self) -> Runtime:
        return self.assembly.runtime

    def loop(
        self,
        plan: TrainingPlan,
        writer: Writer,
        notifier: Notifier[Any],
        trace_folder: str | None,
        debug: bool,
    ) -> TrainingLoop:
        """The loop that trains the stage.

        Args:
          plan: the stages.
          writer: receives the metrics, and shows what the loop does.
          notifier: calls the callbacks of the user.
          trace_folder: where profiles go; None records none.
          debug: also name the operation that made a NaN.
        """
        config = self.config
        assembly = self.assembly
        runtime = self.runtime
        traces = Traces(
            trace_folder, config.profile_window, assembly.programs, writer.message, assembly.clock
        )
        return TrainingLoop(
            config=config,
            assembly=assembly,
            run=self.run,
            pipeline=self.pipeline,
            schedule=Schedule(
                config=config,
                coordinator=assembly.coordinator,
                stage=plan.stage(self.stage),
                index=self.stage,
                is_last=self.stage == plan.last,
            ),
            saver=self.saver,
            recovery=Recovery(config, runtime, self.checkpoints, self.start, debug),
            reporter=Reporter(config, self.run, runtime, assembly.clock, writer),
            writer=writer,
            notifier=notifier,
            traces=traces,
            is_compiled=runtime.compiled is not None,
        )


def assemblies_of(plan: TrainingPlan, first: Assembly) -> list[Assembly]:
    """The assembly of each stage, `first` among them; stages with the same program share one.

    Raises:
      ConfigError: a stage cannot be trained here.
    """
    if not plan.stages:
        return [first]
    known = {program_shape(plan.configs[0]): first}
    found = []
    for i, config in enumerate(plan.configs):
        shape = program_shape(config)
        if shape not in known:
            known[shape] = first.for_config(config)
        found.append(known[shape])
        plan.require_renewable(i, found[-1].runtime.learning)
    return found
