"""The lock of a run's folder: one trainer has it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import sys
from collections.abc import Iterator

from etils import epath

from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.local_files import is_remote, no_link
from jaxrl.config.text import one_line
from jaxrl.parallel import process_group
from jaxrl.parallel.process_exit import leave
from jaxrl.runs import storage

_LARGEST_HOLDER = 4096  # bytes of `.lock`

log = logging.getLogger(__name__)


@contextlib.contextmanager
def hold(path: epath.Path) -> Iterator[None]:
    """Locks the folder, which must exist, against other trainers; readers need no lock.

    The kernel releases the lock when the process ends, for any reason; on gs:// it expires. A file
    system without locks has none. The first of several processes of one run holds it.

    Raises:
      ConfigError: another trainer has the folder.
    """
    with contextlib.ExitStack() as held:
        process_group.by_first(lambda: _take(path, held))
        yield


def _take(path: epath.Path, held: contextlib.ExitStack) -> None:
    """Takes the lock; `held` releases it."""
    if is_remote(path):
        held.enter_context(_lease(path))
        return
    file = path / ".lock"
    with errors_as(ConfigError, f"`--workdir` (={path}) cannot be locked", OSError):
        descriptor = no_link(os.fspath(file), os.O_RDWR | os.O_CREAT)
    stream = held.enter_context(os.fdopen(descriptor, "r+", errors="replace"))
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = stream.read(_LARGEST_HOLDER) or "another process"
        text = f"is in use by {holder}: end that, or name another folder"
        raise ConfigError(f"`--workdir` (={path}) {text}") from error
    except OSError as error:
        log.warning("%s cannot be locked, make sure that nothing else trains there: %s", path, error)
    stream.truncate(0)
    stream.write(f"process {os.getpid()} on {socket.gethostname()}")
    stream.flush()


@contextlib.contextmanager
def _lease(path: epath.Path) -> Iterator[None]:
    def lost(holder: str) -> None:
        line = one_line(f"`--workdir` (={path}) was taken over by {holder}")
        print("error:", line, file=sys.stderr)
        leave(1)  # At once: any file that this process still writes could be theirs.

    lease = storage.Lease(f"{path}/.lock", lost)
    try:
        lease.acquire()
    except ConfigError as error:
        raise ConfigError(f"`--workdir` (={path}) is {error}") from error
    except Exception as error:
        if not storage.is_failure(error) and not isinstance(error, OSError):
            raise
        raise ConfigError(f"`--workdir` (={path}) cannot be locked: {storage.reason(error)}") from error
    try:
        yield
    finally:
        lease.release()
