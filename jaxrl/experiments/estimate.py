"""The time that an experiment would take, from a second of training each architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from jaxrl.config import Config
from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan

_SECONDS = 1.0


@dataclass(frozen=True)
class CellEstimate:
    """The cost of the cells of one architecture.

    Attributes:
      cells: their names.
      memory: bytes of the training program; None if the compiler does not report it.
      hours: of training all of them, one after the other, without evaluations and pretraining.
    """

    architecture: str
    cells: tuple[str, ...]
    parameters: int
    memory: int | None
    hours: float


class Cost(Protocol):
    """The cost of training on one device; `memory` in bytes, None if the compiler does not report it."""

    @property
    def parameters(self) -> int: ...

    @property
    def steps_per_second(self) -> float: ...

    @property
    def memory(self) -> int | None: ...


def estimate(
    plan: ExperimentPlan,
    measure: Callable[[Config, float], Cost],
    say: Callable[[str, int, int], object] = lambda name, number, of: None,
) -> Iterator[CellEstimate]:
    """Estimates the cells of each architecture.

    Args:
      measure: trains a cell for so many seconds.
      say: is called with the architecture being measured, its number and the number of all.
    """
    names = plan.options.architectures
    for number, architecture in enumerate(names, 1):
        say(architecture, number, len(names))
        cells = [cell for cell in plan.cells if cell.architecture == architecture]
        yield _of(plan, cells, measure(plan.config(cells[0], with_suite=False), _SECONDS))


def _of(plan: ExperimentPlan, cells: list[ExperimentCell], cost: Cost) -> CellEstimate:
    seconds = plan.options.total_timesteps / cost.steps_per_second
    return CellEstimate(
        architecture=cells[0].architecture,
        cells=tuple(cell.name for cell in cells),
        parameters=cost.parameters,
        memory=cost.memory,
        hours=len(cells) * seconds / 3600,
    )
