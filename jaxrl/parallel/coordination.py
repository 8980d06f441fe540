"""Decisions that all processes of a run share: when to stop, and how much to dispatch at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from jaxrl.metrics.clock import Clock, Pace
from jaxrl.parallel.signals import Interruption
from jaxrl.types import Array

# Target length of a dispatch: signals and time budgets wait for one to finish. One iteration may take longer.
DISPATCH_SECONDS = 0.5


@dataclass(frozen=True)
class Report:
    """What one process tells the others.

    Attributes:
      signum: the signal it received, or 0.
      trained_seconds: see `Clock.trained`.
      wall_seconds: see `Clock.wall`.
      closing_seconds: see `Clock.closing`.
      iterations: that it would dispatch at once.
    """

    signum: float = 0
    trained_seconds: float = 0.0
    wall_seconds: float = 0.0
    closing_seconds: float = 0.0
    iterations: float = 1


class Agreement:
    """The signal, elapsed time and dispatch size that all processes of a run act on.

    A process on its own uses its own values at once. Several exchange theirs after every dispatch, while
    the devices work. The values sent with the last finished dispatch are in force: all processes finish
    the same dispatches in the same order, so they decide alike without waiting for each other.

    Attributes:
      interruption: the signals that this process received.
    """

    def __init__(
        self,
        clock: Clock,
        gather: Callable[[Sequence[float]], Array] | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        """Agrees on nothing yet.

        Args:
          clock: of this process.
          gather: sends numbers to all processes (`Topology.gatherer`); None if there is only one.
          interruption: the signals that this process receives; None for a process that catches none.
        """
        self.interruption = interruption or Interruption()
        self._clock = clock
        self._gather = gather
        self._pace = Pace(DISPATCH_SECONDS)
        self._heard = Report()

    @property
    def signum(self) -> int | None:
        """The signal that tells all processes to save and stop, once they agree on it."""
        return int(self._in_force.signum) or None

    @property
    def trained_seconds(self) -> float:
        """Seconds of training since the start of the run, without the warm-up."""
        return self._in_force.trained_seconds

    @property
    def wall_seconds(self) -> float:
        """Seconds since the start of the process."""
        return self._in_force.wall_seconds

    @property
    def closing_seconds(self) -> float:
        """Seconds that the end of the run will take."""
        return self._in_force.closing_seconds

    @property
    def iterations(self) -> int:
        """Iterations per dispatch."""
        return int(self._in_force.iterations)

    def gives_up(self) -> bool:
        """Whether a signal may abandon a wait: not with other processes, which would then hang."""
        return self._gather is None and self.interruption.signum is not None

    def begin(self) -> None:
        """Agrees for the first time; the processes wait for each other."""
        self.hear(self.tell())

    def tell(self) -> Array | None:
        """Starts sending this process's values to the others; pass the result to `hear` once it is ready."""
        if self._gather is None:
            return None
        return self._gather(astuple(self._own))

    def hear(self, told: Array | None) -> None:
        """Waits for the values of all processes and puts them in force."""
        if told is None:
            return
        numbers = np.asarray(told)
        latest = Report(*map(float, numbers.max(axis=0)))
        signum = self._heard.signum or latest.signum
        self._heard = replace(latest, signum=signum, iterations=float(numbers[:, -1].min()))
        if signum:
            self.interruption.adopt(int(signum))

    def took(self, iterations: int, seconds: float) -> None:
        """Records how long a dispatch of `iterations` took in this process."""
        self._pace.took(iterations, seconds)

    @property
    def _in_force(self) -> Report:
        return self._heard if self._gather else self._own

    @property
    def _own(self) -> Report:
        clock = self._clock
        return Report(
            signum=self.interruption.signum or 0,
            trained_seconds=clock.trained(),
            wall_seconds=clock.wall(),
            closing_seconds=clock.closing(),
            iterations=self._pace.iterations,
        )
