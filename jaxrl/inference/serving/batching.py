"""Requests that come at the same time share a pass through the policy."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jaxrl.inference.serving.runtimes import Named
from jaxrl.inference.serving.served_policy import ServedPolicy


@dataclasses.dataclass(eq=False, slots=True)
class BatchRows:
    """The rows of one request.

    Attributes:
      obs: [n, ...] by name; or one observation that `ObservationReader.is_one` saw, which is not read yet.
      slots: of the n carries; each slot comes once among all requests that wait.
      reset: where an episode begins.
      mask: bool[n, choices], or None.
      action: a future of [n, ...].
    """

    policy: ServedPolicy
    obs: Any
    slots: list[int]
    reset: list[bool]
    mask: np.ndarray | None
    action: asyncio.Future[np.ndarray]

    @property
    def is_read(self) -> bool:
        return isinstance(self.obs, dict)


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
        self, policy: ServedPolicy, obs: Any, slots: list[int], reset: list[bool], mask: np.ndarray | None
    ) -> np.ndarray:
        """The actions of some rows, [n, ...], as in `BatchRows`; their carries go on.

        Raises:
          Refusal: the observation, which was not read before, does not fit.
        """
        if len(slots) > (most := policy.sizes[-1]):
            everyone = range(len(slots))
            chosen = [everyone[start : start + most] for start in range(0, len(slots), most)]
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
            if given := _gather(batch):
                self._finish(batch, *batch[0].policy.run(given))
        except Exception as error:
            _fail(batch, error)

    async def _pass_in_thread(self, batch: list[BatchRows]) -> None:
        try:
            if given := _gather(batch):
                loop = asyncio.get_running_loop()
                run = batch[0].policy.run
                self._finish(batch, *await loop.run_in_executor(self._thread, run, given))
        except Exception as error:
            _fail(batch, error)
        finally:
            self._running = False
            self._flush()

    def _finish(self, batch: list[BatchRows], action: np.ndarray, after: Named) -> None:
        slots = [slot for rows in batch for slot in rows.slots]
        batch[0].policy.scatter(after, slots)
        self.passes += 1
        self.rows += len(slots)
        start = 0
        for rows in batch:
            if not rows.action.done():
                rows.action.set_result(action[start : start + len(rows.slots)])
            start += len(rows.slots)


def rows_of(
    chosen: Sequence[int], obs: Named, slots: list[int], reset: list[bool], mask: np.ndarray | None
) -> tuple[Named, list[int], list[bool], np.ndarray | None]:
    """Some of the rows of a request."""
    part = None if mask is None else mask[chosen]
    named = {name: x[chosen] for name, x in obs.items()}
    return named, [slots[i] for i in chosen], [reset[i] for i in chosen], part


def _gather(batch: list[BatchRows]) -> Named:
    """The arguments of a pass; requests whose observation does not fit are refused, and leave the batch."""
    reader = batch[0].policy.reader
    batch.sort(key=lambda rows: rows.is_read)
    unread = [rows for rows in batch if not rows.is_read]
    try:
        parts = [reader.read([rows.obs for rows in unread])[1]] if unread else []
    except Exception:
        for rows in unread:  # each alone, so that it has its own error
            try:
                _, rows.obs = reader.read(rows.obs)
            except Exception as error:
                batch.remove(rows)
                _fail([rows], error)
        return _gather(batch) if batch else {}
    parts += [rows.obs for rows in batch if rows.is_read]
    obs = parts[0]
    if len(parts) > 1:
        obs = {name: np.concatenate([part[name] for part in parts]) for name in obs}
    slots = [slot for rows in batch for slot in rows.slots]
    reset = [begins for rows in batch for begins in rows.reset]
    mask = None if batch[0].mask is None else np.concatenate([r.mask for r in batch if r.mask is not None])
    return batch[0].policy.gather(obs, slots, reset, mask)


def _fail(batch: list[BatchRows], error: Exception) -> None:
    for rows in batch:
        if not rows.action.done():
            rows.action.set_exception(error)
