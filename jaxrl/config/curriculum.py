"""The section of the curriculum."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, at_most_elements, bounds, field, matches

STAGES = "stages"
# Level replay, by learning potential; the fields are in `levels`.
PLR = "plr"
ROBUST_PLR = "robust_plr"
ACCEL = "accel"
LEARNABILITY = "learnability"
LEVEL_METHODS = (PLR, ROBUST_PLR, ACCEL, LEARNABILITY)
_NAMES = ", ".join((STAGES, *LEVEL_METHODS))
MOST_STAGES = 100


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    """The tasks that environments get in training (docs/curriculum.md)."""

    name: str = field(
        STAGES,
        matches("|".join((STAGES, *LEVEL_METHODS, ".+:.+")), f"be {_NAMES}, or module:Class"),
        help="the sampler of tasks: stages; level replay by plr, robust_plr, accel or "
        "learnability (the section levels); or module:Class, a custom task sampler. With "
        "stages, but none given, each episode has the default task",
        fixed=True,
        names_module=True,
    )
    file: str = field(
        "",
        help="file of stages, the name of shipped ones (navigation, platformer), or auto, the "
        "environment's; a run stores its contents in curriculum.stages",
    )
    stages: tuple[str, ...] = field(
        (), help="the stages themselves, each as JSON, instead of a file", fixed=True
    )
    difficulties: tuple[float, ...] = field(
        (),
        at_most_elements(MOST_STAGES),
        help="a plain list instead: the values of curriculum.parameter, one after the other",
    )
    parameter: str = field(
        "difficulty",
        matches(r"\w+", "be a name"),
        help="for difficulties: a field of the environment's tasks, or a scale that it names; "
        "otherwise an argument of the environment, which is recreated for each",
    )
    iterations: int = field(100, *bounds(1, LARGEST_INT32), help="for each of curriculum.difficulties")
    num_stages: int = field(
        0, *bounds(0, MOST_STAGES), help="number of stages to use, from the first; 0: all"
    )
    start_stage: int = field(
        1, *bounds(1, LARGEST_INT32), help="the first stage to play, counted from 1", fixed=True
    )

    @property
    def is_used(self) -> bool:
        """True if tasks are chosen."""
        return bool(self.name != STAGES or self.stages)

    @property
    def masks_rows(self) -> bool:
        """True if the rows of some tasks may carry no loss."""
        return self.name not in (STAGES, PLR, LEARNABILITY)
