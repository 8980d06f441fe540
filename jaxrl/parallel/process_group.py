"""The processes of a run: joining them, and exchanging values between them."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError
from jaxrl.parallel.process_exit import leave
from jaxrl.parallel.processes import LostProcess, Processes

_SHUTDOWN_SECONDS = 30  # all processes have finished their work
_MESSAGE_BYTES = 1024  # size of each message of `everywhere`

_T = TypeVar("_T")


@contextlib.contextmanager
def join(processes: Processes) -> Iterator[None]:
    """Joins the other processes for the duration of the block; JAX must not have computed anything before.

    An error inside the block does not shut the group down: the process must then end by `process_exit.leave`.

    Raises:
      LostProcess: the others did not arrive, or were lost inside the block.
    """
    if processes.alone or not _initialize(processes):
        yield
        return
    try:
        yield
    except ConfigError:
        raise
    except (jax.errors.JaxRuntimeError, ValueError, RuntimeError) as error:
        if (reason := _loss(error)) is not None:
            raise LostProcess(f"another process of the run was lost: {reason}") from error
        raise
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # All have done their work.
        jax.distributed.shutdown()


def has_joined() -> bool:
    """True while this process belongs to a group: it has joined others and not shut down cleanly."""
    return jax.distributed.is_initialized()


def _initialize(processes: Processes) -> bool:
    """Joins the group; returns False if there is none after all."""
    # JAX's own handler would swallow SIGTERM; `coordination` agrees on signals instead.
    jax.config.update("jax_enable_preemption_service", False)
    where = processes.coordinator or f"the address that {processes.launcher} gives"
    host = (processes.coordinator or "").rpartition(":")[0]
    local = host in ("localhost", "127.0.0.1")
    # When the others do not arrive, JAX would end the process with a stack trace.
    timer = threading.Timer(processes.join, _give_up, (processes, where))
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            processes.coordinator,
            processes.num_processes,
            processes.process_id,
            cluster_detection_method=None if processes.launcher else "deactivate",
            initialization_timeout=processes.join + 60,
            heartbeat_timeout_seconds=processes.heartbeat,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
            # Any host that reaches the port can join: it opens to others only if processes run there.
            coordinator_bind_address=processes.coordinator if local else None,
        )
    except ValueError:
        if processes.coordinator is None and processes.num_processes is None:
            return False  # It looked like a cluster, but JAX found no coordinator.
        raise
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise LostProcess(f"this process could not join the others at {where}: {reason}") from error
    finally:
        timer.cancel()
    return True


def _give_up(processes: Processes, where: str) -> None:
    """Runs in a timer thread, as the main thread is blocked waiting for the others."""
    count = f"the {processes.num_processes} processes" if processes.num_processes else "all processes"
    text = f"{count} did not meet at {where} within {processes.join} s (--join)"
    this = "" if processes.process_id is None else f"; this is process {processes.process_id}"
    print(f"error: {text}{this}", file=sys.stderr)
    leave(LostProcess.exit_code)


def _loss(error: Exception) -> str | None:
    """The reason, if the error means that another process no longer answers; else None."""
    signs = ("Gloo", "gloo", "coordination", "Connection", "connection", "heartbeat", "UNAVAILABLE", "NCCL")
    text = " ".join(str(error).split())
    return text[:200] if any(sign in text for sign in signs) else None


def num_processes() -> int:
    """The number of processes that train together."""
    return jax.process_count()


def is_first() -> bool:
    """True in the process that acts for all, such as on the files that they share."""
    return jax.process_index() == 0


def by_first(work: Callable[[], _T]) -> _T:
    """Runs `work` in the first process and returns its JSON-compatible result in all of them.

    Raises:
      ConfigError, RunError: `work` raised it; raised in every process.
    """
    result: Any = None
    problem = None
    error = None
    if is_first():
        try:
            result = work()
        except (ConfigError, RunError) as raised:
            error = raised
            problem = [isinstance(raised, ConfigError), str(raised)]
    result, problem = everywhere([result, problem])[0]
    if problem is not None:
        raise error or (ConfigError if problem[0] else RunError)(problem[1])
    return result


def share(count: int) -> slice:
    """The slice of `count` items that belongs to this process."""
    here = jax.process_index()
    processes = jax.process_count()
    return slice(here * count // processes, (here + 1) * count // processes)


def everywhere(value: Any) -> list[Any]:
    """The JSON-compatible `value` of each process, in order; all must call it, and wait for each other."""
    if jax.process_count() == 1:
        return [value]
    text = json.dumps(value).encode()
    received = [b""] * jax.process_count()
    # In messages of one size: each further size would be another program to compile.
    room = _MESSAGE_BYTES - 4
    for start in itertools.count(0, room):
        part = len(text).to_bytes(4, "little") + text[start : start + room].ljust(room, b"\0")
        parts = multihost_utils.process_allgather(np.frombuffer(part, np.uint8)).reshape(len(received), -1)
        received = [before + row[4:].tobytes() for before, row in zip(received, parts, strict=True)]
        lengths = [int.from_bytes(row[:4].tobytes(), "little") for row in parts]
        if max(lengths) <= start + room:
            return [json.loads(whole[:length]) for whole, length in zip(received, lengths, strict=True)]
    raise AssertionError("counting does not end")
