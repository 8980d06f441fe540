"""Requests that come at the same time share a pass through the policy."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxrl.inference.serving.runtimes import Named
from jaxrl.inference.serving.served_policy import ServedPolicy


@dataclasses.dataclass(frozen=True, eq=False)
class BatchRows:
    """The rows of one request.

    Attributes:
      obs: [n, ...] by name.
      slots: int[n], the carries; each slot comes once among all requests that wait.
      reset: bool[n].
      mask: bool[n, choices], or None.
      action: a future of [n, ...].
    """

    policy: ServedPolicy
    obs: Named
    slots: np.ndarray
    reset: np.ndarray
    mask: np.ndarray | None
    action: asyncio.Future[np.ndarray]


class Batcher:
    """Collects rows until there are enough, or the first has waited long enough.

    Everything but a slow policy's own computation happens in the event loop's thread. `passes` and `rows`
    count all so far.
    """

    def __init__(self, largest: int, wait_seconds: float) -> None:
        self._largest = largest
        self._wait_seconds = wait_seconds
        self._waiting: list[BatchRows] = []
        self._waiting_rows = 0
        self._timer: asyncio.Handle | None = None
        self._thread = ThreadPoolExecutor(1, "policy")
        self._running = False
        self.passes = 0
        self.rows = 0

    async def act(
        self, policy: ServedPolicy, obs: Named, slots: np.ndarray, reset: np.ndarray, mask: np.ndarray | None
    ) -> np.ndarray:
        """The actions of some rows, [n, ...]; their carries go on."""
        if len(slots) > (most := policy.sizes[-1]):
            chosen = [slice(start, start + most) for start in range(0, len(slots), most)]
            pieces = (self.act(policy, *rows_of(x, obs, slots, reset, mask)) for x in chosen)
            return np.concatenate(await asyncio.gather(*pieces))
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.append(BatchRows(policy, obs, slots, reset, mask, waiting))
        self._waiting_rows += len(slots)
        if self._waiting_rows >= self._largest:
            self._flush()
        elif self._timer is None:
            # Without a wait still after all requests that have arrived by now.
            wait = self._wait_seconds
            self._timer = loop.call_later(wait, self._flush) if wait else loop.call_soon(self._flush)
        return await waiting

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and not self._running:
            batch = self._next()
            if batch[0].policy.is_slow:
                self._running = True
                asyncio.get_running_loop().create_task(self._pass_in_thread(batch))
            else:
                self._pass(batch)

    def _next(self) -> list[BatchRows]:
        """The requests of the next pass: of one policy, in the order in which they came."""
        policy = self._waiting[0].policy
        most = min(self._largest, policy.sizes[-1])
        chosen: list[BatchRows] = []
        left: list[BatchRows] = []
        count = 0
        for rows in self._waiting:
            if rows.policy is policy and (not chosen or count + len(rows.slots) <= most):
                chosen.append(rows)
                count += len(rows.slots)
            else:
                left.append(rows)
        self._waiting = left
        self._waiting_rows -= count
        return chosen

    def _pass(self, batch: list[BatchRows]) -> None:
        try:
            given, slots = _gather(batch)
            action, after = batch[0].policy.run(given)
            self._finish(batch, slots, action, after)
        except Exception as error:
            _fail(batch, error)

    async def _pass_in_thread(self, batch: list[BatchRows]) -> None:
        try:
            given, slots = _gather(batch)
            loop = asyncio.get_running_loop()
            action, after = await loop.run_in_executor(self._thread, batch[0].policy.run, given)
            self._finish(batch, slots, action, after)
        except Exception as error:
            _fail(batch, error)
        finally:
            self._running = False
            self._flush()

    def _finish(self, batch: list[BatchRows], slots: np.ndarray, action: np.ndarray, after: Named) -> None:
        batch[0].policy.scatter(after, slots)
        self.passes += 1
        self.rows += len(slots)
        start = 0
        for rows in batch:
            if not rows.action.done():
                rows.action.set_result(action[start : start + len(rows.slots)])
            start += len(rows.slots)


def rows_of(
    chosen: Any, obs: Named, slots: np.ndarray, reset: np.ndarray, mask: np.ndarray | None
) -> tuple[Named, np.ndarray, np.ndarray, np.ndarray | None]:
    """Some of the rows of a request."""
    part = None if mask is None else mask[chosen]
    return {name: x[chosen] for name, x in obs.items()}, slots[chosen], reset[chosen], part


def _gather(batch: list[BatchRows]) -> tuple[Named, np.ndarray]:
    """(arguments of the pass, slots of its rows)."""
    first = batch[0]
    if len(batch) == 1:
        return first.policy.gather(first.obs, first.slots, first.reset, first.mask), first.slots
    obs = {name: np.concatenate([rows.obs[name] for rows in batch]) for name in first.obs}
    slots = np.concatenate([rows.slots for rows in batch])
    reset = np.concatenate([rows.reset for rows in batch])
    mask = None if first.mask is None else np.concatenate([r.mask for r in batch if r.mask is not None])
    return first.policy.gather(obs, slots, reset, mask), slots


def _fail(batch: list[BatchRows], error: Exception) -> None:
    for rows in batch:
        if not rows.action.done():
            rows.action.set_exception(error)
