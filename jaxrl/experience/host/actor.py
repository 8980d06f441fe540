"""A thread that collects rollouts while the learner learns."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import jax

from jaxrl.envs.host_env import HostEnvError
from jaxrl.experience.host.collector import HostCollector
from jaxrl.experience.host.waiting import LOOK_EVERY, Cancelled, end
from jaxrl.types import Acting, Array, EpisodeTotals, PyTree, Trajectory


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
      overlap: collect while the learner learns.
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
        """Compiles everything and waits until all environments have started; before the first rollout.

        Raises:
          HostEnvError, Cancelled: as `rollout`.
        """
        self._requests.put(lambda: self._prepare(acting))
        self._wait()

    def rollout(
        self, iteration: int, acting: Acting, tasks: PyTree = None
    ) -> tuple[Trajectory, EpisodeTotals]:
        """Waits for the rollout of `iteration`; iterations must be requested in order.

        Args:
          iteration: one more than the last time.
          acting: the newest; free to be donated after the call.
          tasks: of the episodes that begin in it, see `SteppedCollector.collect`; only without overlap.

        Raises:
          HostEnvError: an environment failed or hung; the actor is closed.
          Cancelled: it was given up; the actor is closed.
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
        return self._wait()

    def close(self) -> None:
        """Gives up what is being collected, ends the thread and closes the environments."""
        self._closed.set()
        self._collector.cancel()
        self._requests.put(None)
        with contextlib.suppress(queue.Empty):  # a finished rollout that nobody will fetch
            self._results.get_nowait()
        end(self._thread, self._collector.env)

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self, acting: Acting) -> bool:
        self._collector.prepare(acting, self._keys_of(0))
        return True

    def _ask(self, iteration: int, acting: Acting, tasks: PyTree = None) -> None:
        keys = self._keys_of(iteration)
        self._asked_for = iteration
        self._requests.put(lambda: self._collector.collect(None, acting, keys, tasks)[1:])

    def _wait(self) -> Any:
        """The next result; an exception closes the actor."""
        found: Any = None
        while found is None:
            try:
                found = self._results.get(timeout=LOOK_EVERY)
            except queue.Empty:
                if (problem := self._collector.overdue()) is not None:
                    self._collector.env.interrupt()
                    found = HostEnvError(problem)
                elif self._given_up():
                    found = Cancelled()
        if isinstance(found, BaseException):
            self.close()
            raise found
        return found

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                found: Any = request()
            except Cancelled:
                return
            except BaseException as error:  # raised again where the rollout was requested
                found = error
            self._put(found)
            if isinstance(found, BaseException):
                return

    def _put(self, found: Any) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._results.put(found, timeout=LOOK_EVERY)
                return
