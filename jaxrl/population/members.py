"""The members of a population, each a run like any other to its trainer, and of all of one shape together."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError
from jaxrl.config.errors import told
from jaxrl.config.sections import GREEDY
from jaxrl.evaluation.during_training import Evaluators
from jaxrl.evaluation.evaluator import STREAM, EvaluationTask, Evaluator, Modes, Played, await_episodes, dealt
from jaxrl.parallel.process_exit import watch_progress
from jaxrl.parallel.sharding import Topology
from jaxrl.population.exchange import Exchange
from jaxrl.population.programs import EpisodesProgram, Programs
from jaxrl.population.shared_calls import SharedCalls
from jaxrl.programs.runtime import Runtime
from jaxrl.reporting.logs import run_name
from jaxrl.reporting.writers import MultiWriter, configured_writers
from jaxrl.reporting.writers.population import PopulationRows
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.training.assembly import Assembly
from jaxrl.training.callbacks import Callbacks
from jaxrl.training.run import train_in
from jaxrl.training.trainer import Trainer
from jaxrl.types import Acting, Array, EpisodeTotals, PyTree, TrainState, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Member:
    """One run of a population: its name in logs, and its configuration, resolved for one device."""

    name: str
    config: Config
    folder: RunFolder


@dataclass(frozen=True)
class MemberEnding:
    """The end of a member.

    Attributes:
      summary: as in its summary.json, or with a signal as its reason; None if it failed.
      error: the error that ended it then.
      seconds: of training in this process.
    """

    summary: Mapping[str, Any] | None
    error: str = ""
    seconds: float = 0.0

    @property
    def steps_made(self) -> float:
        """Steps in this process; 0 if it failed."""
        return self.seconds * self.summary["steps_per_second"] if self.summary else 0.0


@dataclass(frozen=True)
class Conditions:
    """Settings that the members of a population share.

    Attributes:
      debug: see `Trainer`.
      process_started: see `Assembly.build`.
      watchdog: seconds without progress of any member until the process ends itself; 0: never.
    """

    topology: Topology
    interruption: Interruption
    debug: bool = False
    process_started: float | None = None
    watchdog: float = 0.0


def train_members(
    members: Sequence[Member], rows: PopulationRows, conditions: Conditions, exchange: Exchange | None = None
) -> list[MemberEnding]:
    """Trains members of one `program_shape` to the end; returns the ending of each.

    Every member is a `Trainer` in its own thread, which resumes, evaluates, saves and stops as a single run
    does. Their iterations and episodes run as one program. With an `exchange` none can be resumed alone, so
    all resume from the newest step with an intact checkpoint of every member.

    Raises:
      ConfigError: the configuration cannot be trained here.
    """
    if any(member.config.stages for member in members):
        raise ConfigError("`stages` must be empty: the members of a population are one program")
    if exchange is not None:
        exchange.rewind(*_rewind(members))
    programs = Programs(members[0].config, len(members), conditions.topology)
    calls = SharedCalls(len(members))
    assemblies = [
        assemble(member.config, i, programs, calls, conditions.interruption, conditions.process_started)
        for i, member in enumerate(members)
    ]
    taking_part = exchange.callbacks(calls, conditions.interruption) if exchange else None
    endings: dict[int, MemberEnding] = {}

    def train(i: int) -> None:
        run_name.set(members[i].name)
        folder = members[i].folder
        config = members[i].config
        assembly = assemblies[i]
        try:
            callbacks = Callbacks(on_evaluation=taking_part[i] if taking_part else None)
            folder.create()
            with folder.lock(), folder.logs() as logs:
                folder.require_same(config)
                highlights = assembly.runtime.learning.per_device.highlights
                writers = configured_writers(folder.path, config, logs, highlights)
                writers.append(rows.of(i, Path(logs, "metrics.jsonl")))
                with contextlib.closing(MultiWriter(writers)) as writer:
                    trainer = Trainer(config, folder, writer, assembly, conditions.debug, callbacks)
                    summary = train_in(folder, trainer, assembly)
            endings[i] = MemberEnding(summary, seconds=assembly.clock.seconds("train"))
        except Exception as error:  # It must not end the others.
            endings[i] = MemberEnding(None, told(error))
            log.warning("failed: %s", endings[i].error, exc_info=True)
        finally:
            calls.leave(i)
            ended = endings[i].summary
            if ended is None or ended["stop_reason"] not in (conditions.interruption.name, "wall_seconds"):
                rows.leave(i, failed=ended is None)

    def idle() -> tuple[str | None, float]:
        training = [assembly.clock for i, assembly in enumerate(assemblies) if i not in endings]
        return min((clock.idle() for clock in training), key=lambda each: each[1], default=(None, 0.0))

    threads = [threading.Thread(target=train, args=(i,), daemon=True) for i in range(len(members))]
    with watch_progress(idle, conditions.watchdog):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [endings[i] for i in range(len(members))]


def _rewind(members: Sequence[Member]) -> tuple[int, bool]:
    """(the newest step with an intact checkpoint of each, or 0, to which all return; if it is evaluated)."""
    for member in members:
        member.folder.create()
    steps = [set(member.folder.checkpoints.intact_steps()) for member in members]
    newest = max(set.intersection(*steps), default=0)
    for member in members:
        member.folder.checkpoints.rewind(newest)
    owes = [bool(m.folder.checkpoints.meta(newest).get("owes_evaluation")) for m in members if newest]
    return newest, any(owes)


class MemberRuntime(Runtime):
    """Runs a member's iterations together with the others'; everything else on its own device."""

    one_program = True

    def __init__(self, config: Config, member: int, programs: Programs, calls: SharedCalls) -> None:
        self._member = member
        self._programs = programs
        self._calls = calls
        self._own_runtime = programs.runtime_of(member)
        self.spec = self._own_runtime.spec
        self.agent = self._own_runtime.agent
        self.learning = self._own_runtime.learning.with_config(config)

    def trace(self) -> Any:
        return self._programs.training.trace()

    def compile(self) -> None:
        self._programs.training.compile()
        self.compiled = self._programs.training.compiled

    def advance(self, state: TrainState, interval: PyTree, count: int) -> tuple[TrainState, PyTree, Array]:
        arguments = state, interval, jnp.int32(count)
        return self._calls.call(self._member, self._programs.training.advance, arguments, is_urgent=True)

    def rollout(self, state: TrainState) -> tuple[TrainState, Trajectory | None, EpisodeTotals | None]:
        return self._own_runtime.rollout(state)

    def refresh(self, state: TrainState) -> TrainState:
        return self._own_runtime.refresh(state)

    def rollouts(self, count: int) -> Callable[[TrainState], PyTree] | None:
        return self._own_runtime.rollouts(count)

    def failed_rollout(self, state: TrainState) -> Trajectory | None:
        return self._own_runtime.failed_rollout(state)

    def single_device_iteration(self, state: TrainState) -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
        return self._own_runtime.single_device_iteration(state)


@dataclass(eq=False)
class MemberEvaluator(Evaluator):
    """Plays a member's episodes together with the others'."""

    member: int
    program: EpisodesProgram
    calls: SharedCalls
    given_up: Callable[[], bool]

    @property
    def compiled(self) -> Sequence[Any]:
        return self.program.compiled

    def compile(self, state: Acting, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None) -> None:
        self.program.compile(state, episodes, modes, tasks)

    def play(
        self, state: Acting, key: Array, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None
    ) -> Played:
        self.compile(state, episodes, modes, tasks)
        play = self.program.play_function(episodes, modes, tasks is not None)
        key = jax.random.fold_in(key, STREAM)  # as `DeviceEvaluator` does
        played: Played = self.calls.call(self.member, play, (state, key, dealt(tasks, episodes)))
        return await_episodes(played, self.given_up)


def assemble(
    config: Config,
    member: int,
    programs: Programs,
    calls: SharedCalls,
    interruption: Interruption,
    process_started: float | None,
) -> Assembly:
    """The assembly that the trainer of a member drives; see `Assembly.build`."""
    runtime = MemberRuntime(config, member, programs, calls)

    def evaluators_of(given_up: Callable[[], bool]) -> Evaluators:
        def evaluator_of(task: EvaluationTask) -> MemberEvaluator:
            return MemberEvaluator(member, programs.evaluation[task], calls, given_up)

        return Evaluators(config, programs.plan, evaluator_of, runtime.agent)

    return Assembly.around(config, runtime, evaluators_of, interruption, process_started)
