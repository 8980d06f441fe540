"""Threads that step host environments: waiting for them, and one that collects while the learner learns."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax

from jaxrl.envs.host_env import HostEnv, HostEnvError, HostStep, group_rows
from jaxrl.experience.collector import HostCollector
from jaxrl.types import Acting, Array, EpisodeTotals, PyTree, Trajectory

T = TypeVar("T")

_LOOK_EVERY = 0.5  # seconds, after which a wait looks whether the environments still answer
_GRACE = 5.0  # seconds in which a thread may end by itself


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

    The first exception of any group is raised when all have ended. `work` is called with the group, and a
    function that says whether another group has failed.
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
    work: Callable[[Callable[[], bool]], Any],
    overdue: Callable[[], str | None],
    given_up: Callable[[], bool],
    env: HostEnv,
) -> None:
    """Runs `work` in a separate thread, so that an environment that hangs inside C code is noticed.

    HostEnvError if an environment failed or hung, Cancelled if it was given up.

    Args:
      work: called with a function that says whether to raise Cancelled.
      overdue: names the worker that has not answered in time; None if all have.
      given_up: True if the result is no longer wanted; asked now and then.
      env: closed in the end, unless the thread still waits for it.
    """
    cancelled = threading.Event()
    results: queue.Queue[Any] = queue.Queue()

    def run() -> None:
        try:
            results.put(work(cancelled.is_set))
        except BaseException as error:  # raised again where the work was requested
            results.put(error)

    thread = threading.Thread(target=run, name="player", daemon=True)
    thread.start()
    try:
        _next_of(results, overdue, given_up)
    finally:
        cancelled.set()
        _end(thread, env)


def _next_of(
    results: queue.Queue[Any], overdue: Callable[[], str | None], given_up: Callable[[], bool]
) -> Any:
    """The next result, raised if it is an exception, as one is made of environments that hang."""
    while True:
        try:
            found = results.get(timeout=_LOOK_EVERY)
        except queue.Empty:
            if (problem := overdue()) is not None:
                raise HostEnvError(problem) from None
            if given_up():
                raise Cancelled from None
            continue
        if isinstance(found, BaseException):
            raise found
        return found


def _end(thread: threading.Thread, env: HostEnv) -> None:
    """Waits for a thread that is about to end, interrupts its environments if need be, and closes them."""
    thread.join(_GRACE)
    if thread.is_alive():
        env.interrupt()
        thread.join(_GRACE)
    if not thread.is_alive():
        env.close()


class Actor:
    """Hands out one rollout per iteration, collected in its own thread.

        with Actor(collector, keys_of, overlap=True) as actor:
            for iteration in range(n):
                trajectory, totals = actor.rollout(iteration, acting)
                acting = learn(trajectory)

    Without overlap the thread works only during `rollout`, with the parameters given. With overlap it
    collects the next iteration's rollout during the learner's work on this one, with the parameters that
    this call was given: iteration i + 1 learns from a rollout of the parameters before update i, every time
    and no matter how fast either side is. There is never more than one rollout waiting.

    Environments are stepped in a thread in both modes, so that one that hangs inside C code can be noticed.

    Args:
      collector: used by nobody else from now on; its environments are closed with the actor.
      keys_of: the keys [B] of an iteration's actions.
      given_up: asked while waiting; True if the result is not wanted any more.
    """

    def __init__(
        self,
        collector: HostCollector,
        keys_of: Callable[[int], Array],
        overlap: bool,
        given_up: Callable[[], bool] = lambda: False,
    ):
        self._collector = collector
        self._keys_of = keys_of
        self._overlap = overlap
        self._given_up = given_up
        self._copy = jax.jit(lambda tree: jax.tree.map(jax.numpy.copy, tree))
        self._requests: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._results: queue.Queue[Any] = queue.Queue(maxsize=1)
        self._asked_for: int | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="actor", daemon=True)
        self._thread.start()

    def prepare(self, acting: Acting) -> None:
        """Compiles everything and waits until all environments have started; errors as `rollout`."""
        self._requests.put(lambda: self._collector.prepare(acting, self._keys_of(0)))
        self._wait()

    def rollout(
        self, iteration: int, acting: Acting, tasks: PyTree = None
    ) -> tuple[Trajectory, EpisodeTotals]:
        """Waits for the rollout of `iteration`, which is one more than the last time.

        HostEnvError if an environment failed or hung, Cancelled if it was given up; both close the actor.

        Args:
          acting: the newest; free to be donated after the call.
          tasks: of the episodes that begin in it, see `SteppedCollector.collect`; only without overlap.
        """
        if self._closed.is_set():
            raise RuntimeError("the actor is closed")
        if self._overlap:
            acting = self._copy(acting)
        if self._asked_for is None:
            self._ask(iteration, acting, tasks)
        if self._asked_for != iteration:
            raise RuntimeError(f"iteration {iteration} was requested, but {self._asked_for} comes next")
        if self._overlap:
            self._ask(iteration + 1, acting)
        else:
            self._asked_for = None
        found: tuple[Trajectory, EpisodeTotals] = self._wait()
        return found

    def close(self) -> None:
        """Gives up what is being collected, ends the thread and closes the environments."""
        self._closed.set()
        self._collector.cancel()
        self._requests.put(None)
        with contextlib.suppress(queue.Empty):  # a finished rollout that nobody will fetch
            self._results.get_nowait()
        _end(self._thread, self._collector.env)

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, iteration: int, acting: Acting, tasks: PyTree = None) -> None:
        keys = self._keys_of(iteration)
        self._asked_for = iteration
        self._requests.put(lambda: self._collector.collect(None, acting, keys, tasks)[1:])

    def _wait(self) -> Any:
        """The next result; an exception closes the actor."""
        try:
            return _next_of(self._results, self._overdue, self._given_up)
        except BaseException:  # the thread hands over whatever it met
            self.close()
            raise

    def _overdue(self) -> str | None:
        problem = self._collector.overdue()
        if problem is not None:
            self._collector.env.interrupt()
        return problem

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                found: Any = request()
            except Cancelled:
                return
            except BaseException as error:  # raised again where the rollout was requested
                found = error
            while not self._closed.is_set():
                with contextlib.suppress(queue.Full):
                    self._results.put(found, timeout=_LOOK_EVERY)
                    break
            if isinstance(found, BaseException):
                return
