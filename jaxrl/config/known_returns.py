"""Returns of known environments: those that were measured, and those that others report."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class MeasuredReturn:
    """Returns that were measured, as docs/results.md and the pages on suites have them.

    Attributes:
      score: of all seeds, lowest to highest, or what it is of ("95 to 96% successes").
      steps: of training, in millions.
      seeds: how many.
      note: what else must be said, such as how actions were chosen.
      seconds: of the whole process on two CPU cores or one, lowest to highest; "" if they were not taken.
      arguments: of the environment, such as "(max_steps=640)".
    """

    score: str
    steps: float
    seeds: int
    note: str = ""
    seconds: str = ""
    arguments: str = ""

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        note += f", with {self.arguments.strip('()')}" if self.arguments else ""
        return (
            f"{self.score} after {self.steps:.1f} M steps{note} ({self.seeds} seed{'s' * (self.seeds > 1)})"
        )


@dataclasses.dataclass(frozen=True)
class PublishedReturn:
    """The return that others report of an environment.

    Attributes:
      score: mean and deviation, or what it is of.
      steps: of training, in millions; None if the source does not say.
      source: the trainer, and where it says so.
    """

    score: str
    steps: float | None
    source: str

    def __str__(self) -> str:
        steps = f" after {self.steps:.1f} M steps" if self.steps else ""
        return f"{self.score}{steps} ({self.source})"
