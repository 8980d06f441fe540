"""The lock of a run's folder: one trainer has it at a time.

A bucket has no locks that end with their process, but it can refuse to replace an object unless the writer
names its current version (generation). So the holder writes an object and renews it; a process that finds
one not renewed for long takes it over.
"""

from __future__ import annotations

import contextlib
import email.utils
import fcntl
import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from etils import epath

from jaxrl.config.data_files import parse_json
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.config.local_files import is_remote, no_link
from jaxrl.config.text import one_line
from jaxrl.parallel import process_group
from jaxrl.parallel.process_exit import leave
from jaxrl.runs.storage import bucket

RENEWAL_INTERVAL = 15.0  # seconds
# Seconds without renewal until another process may take over: longer than the client's own retries.
DURATION = 60.0
_LARGEST_HOLDER = 4096  # bytes of `.lock`

log = logging.getLogger(__name__)


@contextlib.contextmanager
def lock_folder(path: epath.Path) -> Iterator[None]:
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
    stream.write(_name())
    stream.flush()


@contextlib.contextmanager
def _lease(path: epath.Path) -> Iterator[None]:
    def lost(holder: str) -> None:
        line = one_line(f"`--workdir` (={path}) was taken over by {holder}")
        print("error:", line, file=sys.stderr)
        leave(1)  # At once: any file that this process still writes could be theirs.

    lease = Lease(f"{path}/.lock", lost)
    try:
        lease.acquire()
    except ConfigError as error:
        raise ConfigError(f"`--workdir` (={path}) is {error}") from error
    except Exception as error:
        if not bucket.is_failure(error) and not isinstance(error, OSError):
            raise
        raise ConfigError(f"`--workdir` (={path}) cannot be locked: {bucket.reason(error)}") from error
    try:
        yield
    finally:
        lease.release()


@dataclass(frozen=True)
class _Found:
    """A lease in the bucket: its generation, seconds since it was renewed, and its content."""

    generation: int
    age: float
    content: dict[str, Any]

    @property
    def holder(self) -> str:
        return str(self.content.get("holder", "another process"))


class Lease:
    """A lock on a folder of a bucket: an object that its holder renews and only one process can replace."""

    def __init__(
        self, path: str, lost: Callable[[str], None], every: float = RENEWAL_INTERVAL, lasts: float = DURATION
    ) -> None:
        """Prepares a lease without taking it.

        Args:
          path: of the object, gs://bucket/name.
          lost: called, in a thread, with the name of the process that has taken it over.
          every: seconds between renewals.
          lasts: seconds without renewal after which another may take it over.
        """
        self._path = path
        self._lost = lost
        self._every = every
        self._lasts = lasts
        self._bucket, self._name = bucket.split(path)
        self._client = bucket.filesystem()
        self._id = uuid.uuid4().hex
        self._generation = 0
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, name="lease", daemon=True)

    def acquire(self) -> None:
        """Takes the lease; waits for the lease of a holder that may be dead to expire.

        Raises:
          ConfigError: its holder is alive.
          Exception: an error of the client.
        """
        seen: _Found | None = None
        while not self._take(0):
            found = self._read()
            if found is None:
                continue
            if found.content.get("id") == self._id:  # the client sent the request twice
                self._generation = found.generation
                break
            state = _state(found.content)
            if state == "alive" or (seen is not None and found.generation != seen.generation):
                raise ConfigError(f"in use by {found.holder}")
            if state == "dead" or found.age > self._lasts:
                log.warning("taking over from %s, which ended without saying so", found.holder)
                if self._take(found.generation):
                    break
                continue
            if seen is None:
                message = "%s had it %.0f s ago: waiting until it shows itself, or for %.0f s"
                log.warning(message, found.holder, found.age, self._lasts - found.age)
                seen = found
            time.sleep(self._every / 3)
        self._thread.start()

    def release(self) -> None:
        """Gives the lease back; if the bucket is out of reach, it expires."""
        self._released.set()
        self._thread.join(1.0)
        with contextlib.suppress(Exception):
            generation = str(self._generation)
            self._client.call("DELETE", "b/{}/o/{}", self._bucket, self._name, ifGenerationMatch=generation)

    def _keep_renewing(self) -> None:
        renewed = time.monotonic()
        warned = False
        while not self._released.wait(self._every):
            try:
                holder = self._renew()
            except Exception as error:
                if time.monotonic() - renewed > self._lasts and not warned:
                    warned = True
                    why = bucket.reason(error)
                    log.warning("%s cannot be renewed, training continues: %s", self._path, why)
                continue
            renewed = time.monotonic()
            warned = False
            if holder is not None:
                self._lost(holder)
                return

    def _renew(self) -> str | None:
        """Renews the lease; returns the process that has taken it over, or None."""
        if self._take(self._generation):
            return None
        found = self._read()
        if found is None:
            return None if self._take(0) else self._renew()
        if found.content.get("id") != self._id:
            return found.holder
        self._generation = found.generation
        return None

    def _take(self, generation: int) -> bool:
        """Writes the object if its generation is this one (0: if none exists); returns True if it did."""
        content = {"holder": _name(), "id": self._id, "machine": _machine(), "process": os.getpid()}
        try:
            written = self._client.call(
                "POST",
                self._client.base.replace("/storage/v1/", "/upload/storage/v1/") + "b/{}/o",
                self._bucket,
                uploadType="media",
                name=self._name,
                ifGenerationMatch=str(generation),
                headers={"Content-Type": "application/json"},
                data=json.dumps(content).encode(),
                json_out=True,
            )
        except FileExistsError:  # the client's error for a failed precondition
            return False
        self._generation = int(written["generation"])
        return True

    def _read(self) -> _Found | None:
        try:
            headers, body = self._client.call("GET", "b/{}/o/{}", self._bucket, self._name)
            described = parse_json(body)
            content = parse_json(self._client.cat_file(f"{self._bucket}/{self._name}"))
        except FileNotFoundError:
            return None
        except ValueError:
            content = {}
        renewed = datetime.fromisoformat(described["updated"])
        now = email.utils.parsedate_to_datetime(headers["Date"])  # by the clock that dates objects
        age = max(0.0, (now - renewed).total_seconds())
        return _Found(int(described["generation"]), age, content if isinstance(content, dict) else {})


def _name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _machine() -> str:
    """Identifies the machine, or the container on it; empty if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as stream:
            return f"{stream.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _state(content: dict[str, Any]) -> str:
    """ "alive", "dead" or "unknown": only processes of this machine can be checked."""
    process = content.get("process")
    if not _machine() or content.get("machine") != _machine() or not isinstance(process, int):
        return "unknown"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "dead"
    except OSError:
        pass
    return "alive"
