"""The section of the curriculum."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import LARGEST_INT32, at_least, at_most, at_most_elements, field, matches

STAGES = "stages"
MOST_STAGES = 100


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    """The tasks that environments get in training (docs/curriculum.md)."""

    name: str = field(
        STAGES,
        matches(rf"{STAGES}|.+:.+", f"be {STAGES}, or module:Class"),
        help="what chooses the tasks of episodes: stages, or module:Class, a task sampler of one's own; "
        "without stages each episode has the default task",
        fixed=True,
        names_module=True,
    )
    file: str = field(
        "",
        help="file of stages, the name of shipped ones (navigation, platformer), or auto, those of the "
        "environment; a run keeps what it says in curriculum.stages",
    )
    stages: tuple[str, ...] = field(
        (), help="the stages themselves, each as JSON, where no file has them", fixed=True
    )
    difficulties: tuple[float, ...] = field(
        (),
        at_most_elements(MOST_STAGES),
        help="a plain list instead: the values of curriculum.parameter, one after the other",
    )
    parameter: str = field(
        "difficulty",
        matches(r"\w+", "be a name"),
        help="of difficulties: a field of the environment's tasks, or a scale that it names",
    )
    iterations: int = field(
        100, at_least(1), at_most(LARGEST_INT32), help="of each of curriculum.difficulties"
    )
    num_stages: int = field(
        0, at_least(0), at_most(MOST_STAGES), help="only so many stages, from the first; 0: all"
    )
    start_stage: int = field(
        1, at_least(1), at_most(LARGEST_INT32), help="the stage to begin with; 1 is the first", fixed=True
    )

    @property
    def is_used(self) -> bool:
        """True if tasks are chosen."""
        return bool(self.name != STAGES or self.stages)
