"""The display of a search: a live line on a terminal, a plain line per trial anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from jaxrl.config import text
from jaxrl.reporting.display.live_panel import LivePanel
from jaxrl.search.dimension import label
from jaxrl.search.trials import DONE, FAILED, PRUNED, Objective, StudyTrial

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINE_SECONDS = 60.0  # between lines about the whole search, if the display cannot be redrawn
_REFRESH_SECONDS = 1.0


class SearchDisplay:
    """Shows a search: trials done, running, pruned and failed, the best so far, the time left."""

    def __init__(
        self, title: str, total: int, jobs: int | None, objective: Objective, stream: TextIO | None = None
    ) -> None:
        self._total = total
        self._jobs = jobs
        self._objective = objective
        self._seconds: list[float] = []
        self._shown = time.monotonic()
        self._trials: Sequence[StudyTrial] = ()
        self._panel = LivePanel(self._bar, stream)
        self.message(title)
        self._panel.open()

    def is_due(self) -> bool:
        """True if the interval between updates has passed."""
        every = _REFRESH_SECONDS if self._panel.is_live else _LINE_SECONDS
        return time.monotonic() - self._shown >= every

    def update(self, trials: Sequence[StudyTrial]) -> None:
        """Shows the state of all trials."""
        self._shown = time.monotonic()
        self._trials = tuple(trials)
        if not self._panel.is_live:
            self.message(self.line(trials))

    def line(self, trials: Sequence[StudyTrial]) -> str:
        """`12 of 20 trials done, 2 running, 1 failed, best 487.3 (trial 4), 3:20 left`."""
        counts = {state: sum(t.state == state for t in trials) for state in (DONE, PRUNED, FAILED)}
        running = sum(not trial.ended for trial in trials)
        parts = [f"{counts[DONE]} of {self._total} trials done", f"{running} running"]
        parts += [f"{counts[state]} {state}" for state in (PRUNED, FAILED)]
        if ranked := self._objective.rank(list(trials)):
            parts.append(f"best {text.number(ranked[0].score)} (trial {ranked[0].number})")
        if (left := self._left(trials)) is not None:
            parts.append(f"{text.clock(left)} left")
        return ", ".join(parts)

    def _left(self, trials: Sequence[StudyTrial]) -> float | None:
        if not self._seconds:
            return None
        open_ = max(self._total - sum(trial.ended for trial in trials), 0)
        jobs = self._jobs or max(1, sum(not trial.ended for trial in trials))
        return open_ * sum(self._seconds) / len(self._seconds) / jobs

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        ended = sum(trial.ended for trial in self._trials)
        line = Text(self.line(self._trials), overflow="ellipsis", no_wrap=True)
        grid.add_row(ProgressBar(total=max(self._total, 1), completed=ended, width=20), line)
        return grid

    def show_end(self, trial: StudyTrial, seconds: float) -> None:
        """Prints a line on a trial that has ended, `seconds` after it started."""
        self._seconds.append(seconds)
        self.message(describe(trial))

    def message(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        self._panel.message(line)

    def close(self) -> None:
        self._panel.close()


def describe(trial: StudyTrial) -> str:
    """`trial 3: done, 487.3 in 12 s, ppo.learning_rate 0.0003`."""
    score = "" if trial.score is None else f", {text.number(trial.score)}"
    spent = "" if trial.seconds is None else f" in {text.seconds(trial.seconds)}"
    values = ", ".join(f"{name} {label(value)}" for name, value in trial.values.items())
    said = f": {trial.reason}" if trial.state == FAILED else f"{score}{spent}"
    return f"trial {trial.number}: {trial.state}{said}, {values}"
