"""Waiting for host environments: for how long, and what to do about those that never answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from envs.base import HostEnv, HostEnvError, HostStep, group_rows

T = TypeVar("T")

# How often a wait looks whether the environments still answer.
LOOK_EVERY = 0.5
# How long a thread may take to end by itself.
GRACE = 5.0


class Cancelled(Exception):
    """Work was given up half-way because nobody wants it any more."""


class Watch:
    """Receives from environments; other threads may ask how long it has been waiting.

    Attributes:
      seconds: spent waiting so far, all in all.
    """

    def __init__(self, env: HostEnv):
        self.env = env
        self.seconds = 0.0
        self._waiting: tuple[int, float] | None = None

    def recv(self, group: int) -> HostStep:
        """The group's next step."""
        started = time.monotonic()
        self._waiting = group, started
        step = self.env.recv(group)
        self._waiting = None
        self.seconds += time.monotonic() - started
        return step

    def overdue(self, step: int) -> str | None:
        """Which environments have not answered in time at `step`; None if all is well."""
        waiting, limit = self._waiting, self.env.timeout
        if waiting is None or limit is None or time.monotonic() - waiting[1] < limit:
            return None
        rows = group_rows(self.env, waiting[0])
        where = f"environments {rows.start} to {rows.stop - 1}, step {step}"
        return f"{self.env.spec.name}, {where}: did not answer within {limit:g} s"


def attended(
    work: Callable[[Callable[[], bool]], T],
    overdue: Callable[[], str | None],
    given_up: Callable[[], bool],
    env: HostEnv,
) -> T:
    """Runs `work` in a thread of its own, so that an environment that hangs inside C code is noticed.

    Args:
      work: called with a function that says whether to raise Cancelled.
      overdue: what has not answered in time, or None.
      given_up: whether the result is still wanted; asked now and then.
      env: closed in the end, unless the thread still waits for it.

    Raises:
      HostEnvError: an environment failed or hung.
      Cancelled: it was given up.
    """
    cancelled = threading.Event()
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((work(cancelled.is_set), None))
        except BaseException as error:  # raised again where the work was asked for
            results.put((None, error))

    thread = threading.Thread(target=run, name="player", daemon=True)
    thread.start()
    try:
        while True:
            try:
                found, error = results.get(timeout=LOOK_EVERY)
            except queue.Empty:
                if (problem := overdue()) is not None:
                    raise HostEnvError(problem) from None
                if given_up():
                    raise Cancelled from None
                continue
            if error is not None:
                raise error
            return found
    finally:
        cancelled.set()
        end(thread, env)


def end(thread: threading.Thread, env: HostEnv) -> None:
    """Waits for a thread that is about to end, interrupts its environments if need be, and closes them."""
    thread.join(GRACE)
    if thread.is_alive():
        env.interrupt()
        thread.join(GRACE)
    if not thread.is_alive():
        env.close()
