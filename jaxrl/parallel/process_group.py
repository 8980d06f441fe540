"""The processes of a run: joining them, and what they tell each other through JAX."""

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
from jaxrl.config.fields import RunError
from jaxrl.parallel.processes import LostProcess, Processes
from jaxrl.parallel.signals import leave

_SHUTDOWN_SECONDS = 30  # for processes that have all finished
_MESSAGE_BYTES = 1024  # of `everywhere`, sent at once

_T = TypeVar("_T")


@contextlib.contextmanager
def joined(processes: Processes) -> Iterator[None]:
    """Makes this process one of several while the block lasts, before JAX computes anything.

    What the block raises leaves the others alone: then the process must end, by `interrupt.leave`.

    Raises:
      LostProcess: the others did not come, or were lost inside the block.
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
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # They have all done their work.
        jax.distributed.shutdown()


def has_joined() -> bool:
    """Whether this process is one of several, and has not left them in good order."""
    return jax.distributed.is_initialized()


def _initialize(processes: Processes) -> bool:
    """Returns whether there are others."""
    # JAX's own handler would swallow SIGTERM; here processes agree on signals themselves.
    jax.config.update("jax_enable_preemption_service", False)
    where = processes.coordinator or f"the address that {processes.launcher} gives"
    host = (processes.coordinator or "").rpartition(":")[0]
    local = host in ("localhost", "127.0.0.1")
    # JAX would end a process that waits in vain with a stack trace.
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
            # Whoever reaches the port can join: from outside only where the others are there.
            coordinator_bind_address=processes.coordinator if local else None,
        )
    except ValueError:
        if processes.coordinator is None and processes.num_processes is None:
            return False  # It only looked like a cluster, and JAX, having looked closer, names no address.
        raise
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise LostProcess(f"this process could not join the others at {where}: {reason}") from error
    finally:
        timer.cancel()
    return True


def _give_up(processes: Processes, where: str) -> None:
    """In a thread of its own: the main one waits for the others."""
    count = f"the {processes.num_processes} processes" if processes.num_processes else "all processes"
    text = f"{count} did not meet at {where} within {processes.join} s (--join)"
    this = "" if processes.process_id is None else f"; this is process {processes.process_id}"
    print(f"error: {text}{this}", file=sys.stderr)
    leave(LostProcess.exit_code)


def _loss(error: Exception) -> str | None:
    """The reason, where an error says that another process does not answer any more."""
    signs = ("Gloo", "gloo", "coordination", "Connection", "connection", "heartbeat", "UNAVAILABLE", "NCCL")
    text = " ".join(str(error).split())
    return text[:200] if any(sign in text for sign in signs) else None


def num_processes() -> int:
    """How many processes share the training."""
    return jax.process_count()


def is_first() -> bool:
    """Whether this process is the one that acts for all, on files that they share."""
    return jax.process_index() == 0


def by_first(work: Callable[[], _T]) -> _T:
    """The first process does `work` for all, which get its JSON-compatible result.

    Raises:
      ConfigError, RunError: the work raised it; everywhere.
    """
    result: Any = None
    problem, error = None, None
    if is_first():
        try:
            result = work()
        except (ConfigError, RunError) as raised:
            error, problem = raised, [isinstance(raised, ConfigError), str(raised)]
    result, problem = everywhere([result, problem])[0]
    if problem is not None:
        raise error or (ConfigError if problem[0] else RunError)(problem[1])
    return result


def share(count: int) -> slice:
    """This process's share of `count` things that all processes divide among themselves."""
    here, processes = jax.process_index(), jax.process_count()
    return slice(here * count // processes, (here + 1) * count // processes)


def everywhere(value: Any) -> list[Any]:
    """The JSON-compatible `value` of each process, in order. All must call it: they wait for each other."""
    if jax.process_count() == 1:
        return [value]
    text = json.dumps(value).encode()
    received = [b""] * jax.process_count()
    # In messages of one size: another would be another program to compile.
    room = _MESSAGE_BYTES - 4
    for start in itertools.count(0, room):
        part = len(text).to_bytes(4, "little") + text[start : start + room].ljust(room, b"\0")
        parts = multihost_utils.process_allgather(np.frombuffer(part, np.uint8)).reshape(len(received), -1)
        received = [before + row[4:].tobytes() for before, row in zip(received, parts, strict=True)]
        lengths = [int.from_bytes(row[:4].tobytes(), "little") for row in parts]
        if max(lengths) <= start + room:
            return [json.loads(whole[:length]) for whole, length in zip(received, lengths, strict=True)]
    raise AssertionError("counting does not end")
