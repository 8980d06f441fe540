"""Decisions that all processes of a run share: when to stop, and how much to dispatch at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxrl.metrics.clock import Clock, Pace
from jaxrl.parallel.signals import Interruption
from jaxrl.types import Array

# Target length of a dispatch: signals and time budgets wait for one to finish. One iteration may take longer.
DISPATCH_SECONDS = 0.5


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
        self._heard: tuple[int, float, int] = (0, 0.0, 1)

    @property
    def signum(self) -> int | None:
        """The signal that tells all processes to save and stop, once they agree on it."""
        return (self._heard[0] or None) if self._gather else self.interruption.signum

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run."""
        return self._heard[1] if self._gather else self._clock.total()

    @property
    def iterations(self) -> int:
        """Iterations per dispatch."""
        return self._heard[2] if self._gather else self._pace.iterations

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
        return self._gather((self.interruption.signum or 0, self._clock.total(), self._pace.iterations))

    def hear(self, told: Array | None) -> None:
        """Waits for the values of all processes and puts them in force."""
        if told is None:
            return
        signums, seconds, iterations = np.asarray(told).T
        signum = self._heard[0] or int(signums.max())
        self._heard = (signum, float(seconds.max()), int(iterations.min()))
        if signum:
            self.interruption.adopt(signum)

    def took(self, iterations: int, seconds: float) -> None:
        """Records how long a dispatch of `iterations` took in this process."""
        self._pace.took(iterations, seconds)
