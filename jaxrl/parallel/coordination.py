"""What the processes of a run decide alike although each knows something else: signals, time, pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxrl.metrics.clock import Clock, Pace
from jaxrl.parallel.signals import Interruption
from jaxrl.types import Array

# A dispatch, which is what a signal or a time budget waits for; one iteration may take longer.
DISPATCH_SECONDS = 0.5


class Agreement:
    """One process knows at once. Several tell each other behind every dispatch, while the devices work.

    What has been told with the dispatch that finished last holds for all: they finish the same dispatches
    in the same order, so they decide alike, and nobody ever waits for an answer.

    Attributes:
      interruption: what signals asked of this process.
    """

    def __init__(self, clock: Clock, gather: Callable[[Sequence[float]], Array] | None = None) -> None:
        """`gather` tells numbers to all processes (`Topology.gatherer`); None where there is only one."""
        self.interruption = Interruption()
        self._clock = clock
        self._gather = gather
        self._pace = Pace(DISPATCH_SECONDS)
        self._heard: tuple[int, float, int] = (0, 0.0, 1)

    @property
    def signum(self) -> int | None:
        """The signal that asks all to save and stop, once they have agreed on it."""
        return (self._heard[0] or None) if self._gather else self.interruption.signum

    @property
    def seconds(self) -> float:
        """Since the start of the run."""
        return self._heard[1] if self._gather else self._clock.total()

    @property
    def iterations(self) -> int:
        """How many make a dispatch."""
        return self._heard[2] if self._gather else self._pace.iterations

    def gives_up(self) -> bool:
        """Whether a signal may end what is being waited for: nobody else counts on it."""
        return self._gather is None and self.interruption.signum is not None

    def begin(self) -> None:
        """Agrees for the first time; all wait for each other."""
        self.hear(self.tell())

    def tell(self) -> Array | None:
        """Starts to tell the others what this process knows now; for `hear`, once it is ready."""
        if self._gather is None:
            return None
        return self._gather((self.interruption.signum or 0, self._clock.total(), self._pace.iterations))

    def hear(self, told: Array | None) -> None:
        """Takes what all have told, and waits for it."""
        if told is None:
            return
        signums, seconds, iterations = np.asarray(told).T
        signum = self._heard[0] or int(signums.max())
        self._heard = (signum, float(seconds.max()), int(iterations.min()))
        # Each ends with the same exit code.
        self.interruption.signum = signum or self.interruption.signum

    def took(self, iterations: int, seconds: float) -> None:
        """Notes that a dispatch of so many iterations took so long here."""
        self._pace.took(iterations, seconds)
