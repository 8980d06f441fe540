"""What an experiment would take, measured on this machine without training it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxrl.diagnostics.architectures import training_cost
from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan

_SECONDS = 1.0


@dataclass(frozen=True)
class CellEstimate:
    """Of the cells of one architecture.

    Attributes:
      cells: their names.
      parameters: their number.
      memory: bytes of the training program; None where the compiler does not say.
      hours: of training all of them, one after the other, without evaluations and pretraining.
    """

    architecture: str
    cells: tuple[str, ...]
    parameters: int
    memory: int | None
    hours: float


def estimate(plan: ExperimentPlan) -> Iterator[CellEstimate]:
    """Compiles one cell of each architecture and times a second of it."""
    for architecture in plan.options.architectures:
        cells = [cell for cell in plan.cells if cell.architecture == architecture]
        yield _of(plan, cells)


def _of(plan: ExperimentPlan, cells: list[ExperimentCell]) -> CellEstimate:
    config = plan.config(cells[0], with_suite=False)
    cost = training_cost(config, _SECONDS)
    seconds = plan.options.total_timesteps / cost.steps_per_second
    return CellEstimate(
        architecture=cells[0].architecture,
        cells=tuple(cell.name for cell in cells),
        parameters=cost.parameters,
        memory=cost.memory,
        hours=len(cells) * seconds / 3600,
    )
