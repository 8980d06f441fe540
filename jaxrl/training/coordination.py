"""Decisions that all processes of a run share: when to stop, and how much to dispatch at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Protocol

import numpy as np

from jaxrl.runs.signals import Interruption
from jaxrl.types import Array

# Target length of a dispatch: signals and time budgets wait for one to finish. One iteration may take longer.
DISPATCH_SECONDS = 0.5


class RunClock(Protocol):
    """The times that processes share; `jaxrl.metrics.clock.Clock` is one."""

    def trained_seconds(self) -> float:
        """Seconds of training since the start of the run, without the warm-up."""

    def wall_seconds(self) -> float:
        """Seconds since the start of the process."""

    def closing_seconds(self) -> float:
        """Seconds that the run would take to end now."""


class Pace:
    """The number of iterations to dispatch at once, so that a dispatch lasts about `seconds`.

    Long enough that the host costs nothing, short enough to respond soon to a signal or a time budget. The
    results do not depend on it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.iterations = 1

    def record(self, iterations: int, seconds: float) -> None:
        """Records the seconds that a dispatch of `iterations` took; the next one at most doubles."""
        if iterations and seconds > 0:
            fitting = int(self._seconds * iterations / seconds)
            self.iterations = max(1, min(fitting, 2 * self.iterations))


@dataclass(frozen=True)
class ProcessStatus:
    """The values that one process sends to the others.

    Attributes:
      signum: the signal it received, or 0.
      trained_seconds: see `RunClock.trained_seconds`.
      wall_seconds: see `RunClock.wall_seconds`.
      closing_seconds: see `RunClock.closing_seconds`.
      iterations: the number that it would dispatch at once.
    """

    signum: float = 0
    trained_seconds: float = 0.0
    wall_seconds: float = 0.0
    closing_seconds: float = 0.0
    iterations: float = 1


class Coordinator:
    """The signal, elapsed time and dispatch size that all processes of a run act on.

    A process on its own uses its own values at once. Several exchange theirs after every dispatch, while
    the devices work. The values sent with the last finished dispatch are in force: all processes finish
    the same dispatches in the same order, so they decide alike without waiting for each other.
    """

    def __init__(
        self,
        clock: RunClock,
        gather: Callable[[Sequence[float]], Array] | None = None,
        interruption: Interruption | None = None,
        dispatch_seconds: float = DISPATCH_SECONDS,
    ) -> None:
        """Starts without values of other processes.

        Args:
          gather: sends numbers to all processes (`Topology.gatherer`); None if there is only one.
          interruption: the signals that this process receives; None for a process that catches none.
          dispatch_seconds: the target length of a dispatch.
        """
        self.interruption = interruption or Interruption()
        self._clock = clock
        self._gather = gather
        self._pace = Pace(dispatch_seconds)
        self._received = ProcessStatus()

    @property
    def signum(self) -> int | None:
        """The signal on which all processes save and stop; None until they agree on one."""
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
        """Seconds that the run would take to end now."""
        return self._in_force.closing_seconds

    @property
    def iterations(self) -> int:
        """Iterations per dispatch."""
        return int(self._in_force.iterations)

    def gives_up(self) -> bool:
        """True if a signal ends a wait early: never with other processes, which would then hang."""
        return self._gather is None and self.interruption.signum is not None

    def begin(self) -> None:
        """Exchanges the first values; the processes wait for each other."""
        self.receive(self.send())

    def send(self) -> Array | None:
        """Starts sending this process's values; pass the result to `receive` once it is ready."""
        if self._gather is None:
            return None
        return self._gather(astuple(self._own))

    def receive(self, sent: Array | None) -> None:
        """Waits for the values of all processes, as `send` returned them, and puts them in force."""
        if sent is None:
            return
        numbers = np.asarray(sent)
        latest = ProcessStatus(*map(float, numbers.max(axis=0)))
        signum = self._received.signum or latest.signum
        self._received = replace(latest, signum=signum, iterations=float(numbers[:, -1].min()))
        if signum:
            self.interruption.adopt(int(signum))

    def record_dispatch(self, iterations: int, seconds: float) -> None:
        """Records the seconds that a dispatch of `iterations` took in this process."""
        self._pace.record(iterations, seconds)

    @property
    def _in_force(self) -> ProcessStatus:
        return self._received if self._gather else self._own

    @property
    def _own(self) -> ProcessStatus:
        clock = self._clock
        return ProcessStatus(
            signum=self.interruption.signum or 0,
            trained_seconds=clock.trained_seconds(),
            wall_seconds=clock.wall_seconds(),
            closing_seconds=clock.closing_seconds(),
            iterations=self._pace.iterations,
        )
