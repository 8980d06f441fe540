"""A watchdog that ends a process which makes no progress, such as one waiting for another that hangs."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

from jaxrl.parallel.process_exit import leave
from jaxrl.parallel.processes import LostProcess


@contextlib.contextmanager
def watch_progress(idle_time: Callable[[], tuple[str | None, float]], seconds: float) -> Iterator[None]:
    """Ends the process with a message if `idle_time` reports no progress for `seconds`.

    A thread does it, as the main thread may be blocked on the devices. Compiling does not count, however
    long it takes: no process waits for another meanwhile.

    Args:
      idle_time: returns (phase, seconds without progress), as `Clock.idle` does.
      seconds: the limit; 0 for no watchdog.
    """
    if not seconds:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(idle_time, seconds, over), name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(idle_time: Callable[[], tuple[str | None, float]], seconds: float, over: threading.Event) -> None:
    while not over.wait(min(1.0, seconds / 4)):
        phase, idle = idle_time()
        if phase != "compile" and idle > seconds:
            doing = f" in the phase `{phase}`" if phase else ""
            print(
                f"error: no progress{doing} for {idle:.0f} s (--watchdog={seconds:g}): this process, or one "
                "that it waits for, is stuck; the same command resumes from the newest checkpoint",
                file=sys.stderr,
            )
            leave(LostProcess.exit_code)
