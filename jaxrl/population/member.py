"""One member of a population, as a trainer sees it: a run like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import Config
from jaxrl.config.sections import GREEDY
from jaxrl.evaluation.during_training import Evaluators
from jaxrl.evaluation.evaluator import STREAM, Evaluator, Modes, Played, await_episodes, dealt
from jaxrl.evaluation.evaluators import EvaluationTask
from jaxrl.population.programs import EpisodesProgram, Programs
from jaxrl.population.shared_calls import SharedCalls
from jaxrl.programs.runtime import Runtime
from jaxrl.runs.signals import Interruption
from jaxrl.training.assembly import Assembly
from jaxrl.types import Acting, Array, EpisodeTotals, PyTree, TrainState, Trajectory


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


class MemberEvaluator(Evaluator):
    """Plays a member's episodes together with the others'."""

    def __init__(
        self, member: int, program: EpisodesProgram, calls: SharedCalls, given_up: Callable[[], bool]
    ) -> None:
        self._member = member
        self._program = program
        self._calls = calls
        self._given_up = given_up

    @property
    def compiled(self) -> Sequence[Any]:
        return self._program.compiled

    def compile(self, state: Acting, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None) -> None:
        self._program.compile(state, episodes, modes, tasks)

    def play(
        self, state: Acting, key: Array, episodes: int, modes: Modes = (GREEDY,), tasks: PyTree = None
    ) -> Played:
        self.compile(state, episodes, modes, tasks)
        play = self._program.play_function(episodes, modes, tasks is not None)
        key = jax.random.fold_in(key, STREAM)  # as `DeviceEvaluator` does
        played: Played = self._calls.call(self._member, play, (state, key, dealt(tasks, episodes)))
        return await_episodes(played, self._given_up)


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
