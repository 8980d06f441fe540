"""The stages of a run, the changes from one to the next, and those since the checkpoint that it continues."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.config import Config, ConfigError, text
from jaxrl.config.declarations import values_of
from jaxrl.config.resolution import empties_memory, stage_configs
from jaxrl.config.training_stages import TrainingStage, in_stage, parse
from jaxrl.programs.hyperparameters import program_shape, with_numbers_of
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.types import LearnerState, TrainState

# Keeps the first episodes of a stage apart from the run's.
_STAGE_STREAM = 0x53544752
# A schedule that moves a value by less, from one update to the next, is not worth a line.
_LEAST_JUMP = 0.01
# The line on `thaws`.
THAWED = "Adam's state is reset for parameters that were frozen"


@dataclass(frozen=True)
class TrainingPlan:
    """The stages of a configuration, with the `configs` of each; without any, the whole run is one."""

    stages: tuple[TrainingStage, ...]
    configs: tuple[Config, ...]

    @classmethod
    def of(cls, config: Config) -> TrainingPlan:
        """The plan of a configuration; ConfigError if a stage is wrong."""
        return cls(parse(config), stage_configs(config))

    @property
    def last(self) -> int:
        """The number of the last stage, from 0 on."""
        return len(self.configs) - 1

    def require(self, index: int) -> None:
        """Raises ConfigError unless there is a stage `index`, which a checkpoint names."""
        if index > self.last:
            raise ConfigError(
                f"`stages` must hold at least {index + 1} elements, not {len(self.stages)}: the checkpoint "
                f"was saved in stage {index + 1}"
            )

    def require_renewable(self, index: int, learning: ShardedLearning) -> None:
        """Raises ConfigError if stage `index` cannot reinitialise parameters, or its patterns fit none."""
        try:
            if self.stages[index].fresh:
                learning.require_renewable(self.stages[index].fresh)
        except ConfigError as error:
            raise in_stage(index, error) from error

    def compiles(self, index: int, first: int = 0) -> list[str]:
        """The names for which stage `index` recompiles in a process that began with stage `first`.

        They are the fields that give it another program, unless a stage between has the same, and `fresh`.
        """
        if index <= first:
            return []
        shapes = [program_shape(config) for config in self.configs[first : index + 1]]
        names: list[str] = []
        if shapes[-1] not in shapes[:-1]:
            before, after = (dict(values_of(shape)) for shape in shapes[-2:])
            old = {field.name: value for field, value in before.items()}
            names = [field.name for field, value in after.items() if old[field.name] != value]
        return [*names, *(["fresh"] if self.stages[index].fresh else [])]

    def announcement(self, first: int = 0) -> str:
        """The line about stages after `first` that recompile, or ""."""
        found = [
            f"{i + 1} ({self.stages[i].name}) for {', '.join(fields)}"
            for i in range(first + 1, len(self.stages))
            if (fields := self.compiles(i, first))
        ]
        return f"stages that compile again: {'; '.join(found)}" if found else ""

    def beginning(self, before: int, index: int, steps: int, has_memory: bool) -> str:
        """The line about stage `index`, which begins after stage `before`."""
        stage = self.stages[index]
        changes = ", ".join(
            f"{name}={text.number(value) if isinstance(value, float) else value}"
            for name, value in stage.changes.items()
        )
        parts = [changes] if changes else []
        if stage.fresh:
            parts.append(f"fresh {', '.join(stage.fresh)}")
        if self.thaws(before, index):
            parts.append(THAWED)
        if has_memory and self.empties_memory(before, index):
            parts.append("the memory starts empty, for another environment")
        said = ", ".join(parts)
        return f"stage {index + 1} of {len(self.stages)} ({stage.name}) from step {steps:,}: {said}"

    def empties_memory(self, before: int, after: int) -> bool:
        """True if the experience collected is of another environment than stage `after`'s."""
        return empties_memory(self.configs[before], self.configs[after])

    def thaws(self, before: int, after: int) -> bool:
        """True if parameters learn in stage `after` that stage `before` froze."""
        return before < after and thaws(self.configs[before], self.configs[after])

    def state_of(self, state: TrainState, before: int, after: int, learning: ShardedLearning) -> TrainState:
        """The state with which stage `after` begins where `before` has ended.

        Parameters, optimiser, statistics and counters continue, except for parameters that the stage
        reinitialises. So do the episodes, unless the environment or the curriculum changes, and the replay
        memory, unless the environment does. Adam restarts if parameters were frozen before: it counted
        updates without their gradients.

        Args:
          state: at the end of stage `before`, which is the later one if a run was rolled back.
          learning: of stage `after`.
        """
        one, other = self.configs[before], self.configs[after]
        first, last = sorted((before, after))
        names = {name for stage in self.stages[first : last + 1] for name in stage.changes}
        state = with_numbers_of(other, learning.topology, state, names)
        patterns = self.stages[after].fresh if before < after else ()
        thaws = self.thaws(before, after)
        restarts = (one.env, one.curriculum) != (other.env, other.curriculum)
        if not (patterns or thaws or restarts):
            return state
        if thaws:
            state = thawed(state, one, other)
        fresh: Any = learning.initial_state(_STAGE_STREAM + after)
        if patterns:
            learner: Any = learning.renew(state.learner, fresh.learner, patterns)
            state = dataclasses.replace(state, learner=learner)
        if self.empties_memory(before, after):
            state = dataclasses.replace(state, memory=fresh.memory)
        if not restarts:
            return state
        return dataclasses.replace(state, collector=fresh.collector, tasks=fresh.tasks)


def thaws(before: Config, after: Config) -> bool:
    """True if parameters learn with one configuration that the one before it froze."""
    return not set(before.network.frozen) <= set(after.network.frozen)


def thawed(state: TrainState, before: Config, after: Config) -> TrainState:
    """The state, with Adam's of a first update if parameters learn from now on that were frozen."""
    if not thaws(before, after):
        return state
    learner: Any = state.learner
    opt_state = jax.tree.map(jnp.zeros_like, learner.opt_state)
    return dataclasses.replace(state, learner=dataclasses.replace(learner, opt_state=opt_state))


def other_jax(meta: Mapping[str, Any]) -> Iterator[str]:
    """The line on another version of jax than that which saved the checkpoint; none if it says none."""
    saved = meta.get("jax")
    if saved and saved != jax.__version__:
        yield (
            f"saved with jax {saved}, continued with jax {jax.__version__}: numbers agree to rounding, "
            "not to the bit"
        )


def replanned(
    learning: ShardedLearning, before: LearnerState, after: LearnerState, earlier: Config, config: Config
) -> Iterator[str]:
    """The line on the values that follow the planned length of the run, if that has changed.

    Args:
      before, after: the state with the time that had elapsed by the earlier plan, and by the present one.
      earlier: the configuration with which it was saved.
    """
    is_same = earlier.total_updates == config.total_updates
    if config.follows_clock:
        is_same = earlier.follows_clock and earlier.stop.seconds == config.stop.seconds
    if is_same or not int(before.updates):
        return
    last = dataclasses.replace(before, updates=before.updates - 1)
    was = learning.algorithm.with_config(earlier).scheduled_values(last)
    now = learning.algorithm.scheduled_values(after)
    moved = [
        f"{name} resumes at {text.number(now[name])}, after {text.number(was[name])}"
        for name in now
        if abs(now[name] - was[name]) > _LEAST_JUMP * max(abs(now[name]), abs(was[name]))
    ]
    if moved:
        yield f"{' and '.join(moved)}: the schedule ends {_end(config)} now, not {_end(earlier)}"


def _end(config: Config) -> str:
    if config.stop.steps:
        return f"at step {config.num_iterations * config.steps_per_iteration:,}"
    return f"after {config.stop.seconds:g} s of training" if config.follows_clock else "never"
