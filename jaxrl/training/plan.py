"""The stages of a run: the configuration of each, and what changes between two of them."""

from __future__ import annotations

import dataclasses
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
from jaxrl.types import TrainState

# Keeps the first episodes of a stage apart from the run's.
_STAGE_STREAM = 0x53544752
# The line on `thaws`.
THAWED = "Adam's state is reset for parameters that were frozen"


@dataclass(frozen=True)
class TrainingPlan:
    """The stages of a configuration; without any, the whole run is one.

    Attributes:
      stages: in their order; empty if the configuration has none.
      configs: of each; at least one.
    """

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

    def stage(self, index: int) -> TrainingStage | None:
        """A stage by its number; None if there are none."""
        return self.stages[index] if self.stages else None

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
        changes = ", ".join(f"{name}={_text_of(value)}" for name, value in stage.changes.items())
        parts = [changes] if changes else []
        if stage.fresh:
            parts.append(f"fresh {', '.join(stage.fresh)}")
        if self.thaws(before, index):
            parts.append(THAWED)
        if has_memory and self.empties_memory(before, index):
            parts.append("the memory starts empty, for another environment")
        said = ", ".join(parts)
        return f"stage {index + 1} of {len(self.stages)} ({stage.name}) from step {steps:,}: {said}"

    def restarts_episodes(self, before: int, after: int) -> bool:
        """True if the environments of two stages are not the same, or get their tasks in another way."""
        one = self.configs[before]
        other = self.configs[after]
        return (one.env, one.curriculum) != (other.env, other.curriculum)

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
          state: at the end of stage `before`.
          before, after: numbers of stages; `before` is the later one if a run was rolled back.
          learning: of stage `after`.
        """
        first, last = sorted((before, after))
        names = {name for stage in self.stages[first : last + 1] for name in stage.changes}
        state = with_numbers_of(self.configs[after], learning.topology, state, names)
        patterns = self.stages[after].fresh if before < after else ()
        thaws = self.thaws(before, after)
        restarts = self.restarts_episodes(before, after)
        if not (patterns or thaws or restarts):
            return state
        if thaws:
            state = thawed(state, self.configs[before], self.configs[after])
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


def _text_of(value: object) -> str:
    return text.number(value) if isinstance(value, float) else str(value)
