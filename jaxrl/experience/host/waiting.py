"""Waiting for host environments: for how long, and what to do about those that never answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from jaxrl.envs.host_env import HostEnv, HostEnvError, HostStep, group_rows

T = TypeVar("T")

# How often a wait looks whether the environments still answer.
LOOK_EVERY = 0.5
# How long a thread may take to end by itself.
GRACE = 5.0


class Cancelled(Exception):
    """Work was given up half-way because it is no longer needed."""


class Watch:
    """Receives from environments, each group from its own thread or all from one.

    Other threads may ask how long it has been waiting.
    """

    def __init__(self, env: HostEnv):
        self.env = env
        self._seconds = [0.0] * env.num_groups
        self._received = [0] * env.num_groups
        self._since: list[float | None] = [None] * env.num_groups

    @property
    def seconds(self) -> float:
        """Spent waiting so far, on the average of the groups."""
        return sum(self._seconds) / len(self._seconds)

    def recv(self, group: int) -> HostStep:
        """The group's next step."""
        started = self._since[group] = time.monotonic()
        try:
            step = self.env.recv(group)
        finally:  # a group that has failed is not overdue while others end
            self._since[group] = None
        self._seconds[group] += time.monotonic() - started
        self._received[group] += 1
        return step

    def overdue(self) -> str | None:
        """The environments that have not answered in time, and at which step; None if all is well."""
        limit = self.env.timeout
        now = time.monotonic()
        for group, since in enumerate(self._since):
            if since is not None and limit is not None and now - since >= limit:
                rows = group_rows(self.env, group)
                where = f"environments {rows.start} to {rows.stop - 1}, step {self._received[group]}"
                return f"{self.env.spec.name}, {where}: did not answer within {limit:g} s"
        return None


def by_group(work: Callable[[int, Callable[[], bool]], T], groups: int) -> list[T]:
    """The results of `work` for each group, worked on side by side.

    Args:
      work: called with the group, and a function that says whether another group has failed.
      groups: how many there are.

    Raises:
      The first exception of any group, when all have ended.
    """
    failed: list[BaseException] = []
    found: dict[int, T] = {}

    def run(group: int) -> None:
        try:
            found[group] = work(group, lambda: bool(failed))
        except BaseException as error:  # raised again in the thread that asked
            failed.append(error)

    others = [
        threading.Thread(target=run, args=(g,), name=f"group {g}", daemon=True) for g in range(1, groups)
    ]
    for thread in others:
        thread.start()
    run(0)
    for thread in others:
        thread.join()
    if failed:
        raise failed[0]
    return [found[g] for g in range(groups)]


def attend(
    work: Callable[[Callable[[], bool]], T],
    overdue: Callable[[], str | None],
    given_up: Callable[[], bool],
    env: HostEnv,
) -> T:
    """Runs `work` in a separate thread, so that an environment that hangs inside C code is noticed.

    Args:
      work: called with a function that says whether to raise Cancelled.
      overdue: names the worker that has not answered in time; None if all have.
      given_up: True if the result is no longer wanted; asked now and then.
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
        except BaseException as error:  # raised again where the work was requested
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
