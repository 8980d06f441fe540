"""Reads folders of checkpoints without trust: what is returned is, bit for bit, what was saved.

The checkpoint of step S is the folder `S` with two items: `state`, arrays by field and path, and `meta`, a
sealed JSON record with the digest of every array. Remains of interrupted saves, and other things, may lie
beside it. Nothing here changes a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config import ConfigError
from jaxrl.metrics import text
from jaxrl.runs import storage
from jaxrl.runs.checkpoint import array_files, integrity, state_arrays
from jaxrl.runs.checkpoint import record as checkpoint_record
from jaxrl.runs.checkpoint.files import COMMITTED, DELETED, is_step, length, plain_files
from jaxrl.runs.checkpoint.record import ImplausibleSize, Record

STATE, META = "state", "meta"  # items of a checkpoint
_META_FILE = f"{META}/metadata"  # what Orbax calls the file of a JSON item
# Folders that Orbax has not finished, or that are only partly deleted, are named STEP, this, and anything.
_UNFINISHED = (".orbax-checkpoint-tmp", DELETED)
_LONGEST_REASON = 300  # characters
# Of one checkpoint: a few for each array and each process.
_MOST_ENTRIES = 50_000
# To find out whether a damaged checkpoint can be read at all.
_READING_SECONDS = 5.0
# tensorstore ends each message with pages of settings.
_DETAILS = re.compile(r" \[(tensorstore_spec|source locations|os_error_code)=.*", re.DOTALL)


class CheckpointError(ConfigError):
    """A checkpoint is missing, does not fit or cannot be reached."""


class CorruptCheckpoint(CheckpointError):
    """The files of a checkpoint can be read, but are not what was saved."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The content of a folder of checkpoints.

    Attributes:
      steps: folders of complete checkpoints, ascending; not verified yet.
      unfinished: folders of interrupted saves or deletions.
      ignored: other things with a checkpoint's name, and what they are.
    """

    steps: Mapping[int, epath.Path]
    unfinished: tuple[epath.Path, ...]
    ignored: Mapping[epath.Path, str]


def open_folder(path: str | os.PathLike[str]) -> epath.Path:
    """The path as Orbax needs it: absolute if local."""
    storage.prepare(path)
    folder = epath.Path(path)
    return folder if storage.is_remote(folder) else folder.absolute()


def find(folder: epath.Path) -> Contents:
    """Lists `folder`, which may be missing.

    Raises:
      OSError: the folder cannot be listed.
    """
    steps: dict[int, epath.Path] = {}
    unfinished, ignored = [], {}
    for entry, kind in _step_entries(folder):
        suffix = next((s for s in _UNFINISHED if s in entry.name), None)
        if ("folder" in kind and suffix) or (kind == "folder" and not _is_complete(entry)):
            unfinished.append(entry)
        elif kind == "folder":
            steps[int(entry.name)] = entry
        else:
            ignored[entry] = kind
    return Contents(dict(sorted(steps.items())), tuple(unfinished), ignored)


def read_record(path: epath.Path) -> Record:
    """The record of the checkpoint `path`.

    Raises:
      CorruptCheckpoint: it is missing or is not what was saved.
      CheckpointError: it cannot be reached.
    """
    with _judging(path):
        file = path / _META_FILE
        try:
            if (found := length(file)) > checkpoint_record.LARGEST:
                raise ImplausibleSize(f"{_META_FILE} has {text.size(found)}")
            record = checkpoint_record.parse(file.read_text())
        except ImplausibleSize:
            raise
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{_META_FILE}: {error}") from error
        if is_step(path.name) and record.step != int(path.name):
            raise ValueError(f"it was saved as the record of step {record.step}")
        return record


def read_arrays(
    path: epath.Path, record: Record, fields: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint, whole and in host memory, each checked against its digest.

    Args:
      path: its folder.
      record: from `read_record(path)`.
      fields: which fields of the state to read, such as `learner/policy`; None reads all.

    Returns:
      Arrays by `field/path`.

    Raises:
      CorruptCheckpoint: an array is missing or is not what was saved; the first one is named.
      CheckpointError: the files cannot be reached.
    """
    wanted = {
        name: described
        for name, described in record.arrays.items()
        if fields is None or state_arrays.is_part(name, fields)
    }
    with _judging(path):
        array_files.require_plausible_size(path / STATE, record.arrays)
        arrays = array_files.read(path / STATE, wanted) if wanted else {}
        found = integrity.describe(arrays)
        for name, described in wanted.items():
            if found[name] != described:
                raise ValueError(f"the array {name} is not what was saved")
    return arrays


def read_back(path: epath.Path, sealed: Mapping[str, Any]) -> None:
    """Makes sure that a checkpoint just written can be found and read, without reading its arrays.

    Args:
      path: its folder.
      sealed: what was to become its record.

    Raises:
      CorruptCheckpoint: the record is another, or an array or a part of a file is missing.
      CheckpointError: the files cannot be reached.
    """
    record = read_record(path)
    with _judging(path):
        if integrity.seal(dataclasses.asdict(record)) != sealed:
            raise ValueError(f"{_META_FILE} is not what was written")
        array_files.require_present(path / STATE, record.arrays)


def damage(path: epath.Path) -> str | None:
    """Reads all of the checkpoint `path`; returns what is wrong with it, None for an intact one.

    Raises:
      CheckpointError: it cannot be reached.
    """
    try:
        read_arrays(path, read_record(path))
    except CorruptCheckpoint as error:
        return str(error)
    return None


def one_line(error: BaseException) -> str:
    """The message of an error, shortened to one line."""
    line = " ".join(_DETAILS.sub("", str(error)).split())
    if isinstance(error, OSError) and error.strerror:
        line = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if len(line) > _LONGEST_REASON:
        line = f"{line[:60]} ... {line[60 - _LONGEST_REASON :]}"  # the subject and the cause
    return line or type(error).__name__


@contextlib.contextmanager
def _judging(path: epath.Path) -> Iterator[None]:
    """Raises errors of the block as damage of the checkpoint `path`, unless its files cannot be read."""
    try:
        _refuse_strangers(path)
        yield
    except CheckpointError:
        raise
    except MemoryError as error:
        told = str(error) or "there is not enough memory"
        raise CheckpointError(f"the checkpoint {path} cannot be read: {told}") from error
    except Exception as error:
        own = isinstance(error, ImplausibleSize)
        reason = None if own else one_line(error) if _is_unreachable(error) else _why_unreadable(path)
        if reason:
            raise CheckpointError(f"the checkpoint {path} cannot be read: {reason}") from error
        raise CorruptCheckpoint(f"the checkpoint {path} is damaged: {one_line(error)}") from error


def _is_unreachable(error: Exception) -> bool:
    missing = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
    if isinstance(error, OSError):
        return not isinstance(error, missing)
    # tensorstore raises a ValueError for everything, with the code of the failure in its text.
    codes = ("PERMISSION_DENIED", "UNAUTHENTICATED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED")
    return any(code in str(error) for code in codes)


def _refuse_strangers(path: epath.Path) -> None:
    """Orbax writes a few plain files and folders; a link could lead anywhere, a pipe would block forever."""
    if storage.is_remote(path):
        return
    entries = (os.path.join(at, name) for at, *names in os.walk(path) for name in itertools.chain(*names))
    for count, entry in enumerate(itertools.chain([os.fspath(path)], entries)):
        if count > _MOST_ENTRIES:
            raise ImplausibleSize(f"it holds more than {_MOST_ENTRIES:,} files")
        if not os.path.lexists(entry):
            continue  # what is missing is reported later
        mode = os.lstat(entry).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
            raise ValueError(f"{entry} is {kind}")


def _why_unreadable(path: epath.Path) -> str | None:
    """Reads the files below `path`, as far as it gets in time; returns what prevents that, or None."""
    deadline = time.monotonic() + _READING_SECONDS
    try:
        if not path.is_dir():
            return "there is no such folder"
        for file in plain_files(path):
            with file.open("rb") as stream:
                while stream.read(1 << 20) and time.monotonic() < deadline:
                    pass
    except Exception as error:
        return one_line(error)
    return None


def _step_entries(folder: epath.Path) -> Iterator[tuple[epath.Path, str]]:
    """(entry, kind) of everything in `folder` that is named like a step or an unfinished one."""
    # In a bucket, a folder that cannot be reached at the moment would look like a missing one.
    listed = storage.entries(folder) if storage.is_remote(folder) else None
    names = listed if listed is not None else [e.name for e in folder.iterdir()] if folder.exists() else []
    for name in sorted(names):
        suffix = next((s for s in _UNFINISHED if s in name), None)
        if is_step(name.partition(suffix)[0] if suffix else name):
            entry = folder / name
            yield entry, _kind(entry) if listed is None else "folder" if listed[name] else "a file"


def _kind(entry: epath.Path) -> str:
    """What `entry` is; "folder" only if it holds files or cannot be listed."""
    if os.path.islink(entry):
        return "a symbolic link"
    if not entry.is_dir():
        return "a file"
    if os.access(entry, os.R_OK | os.X_OK):
        return "folder" if any(files for _, _, files in os.walk(entry)) else "an empty folder"
    return "folder"


def _is_complete(path: epath.Path) -> bool:
    # A local folder gets its name once all is written; on gs:// a file marks it.
    if not storage.is_remote(path):
        return True
    with storage.as_os_errors():
        return (path / COMMITTED).exists()
