"""Readers of folders of checkpoints: returned arrays are, bit for bit, the saved ones.

The checkpoint of step S is the folder `S` with two items: `state`, arrays by field and path, and `meta`, a
sealed JSON record with the digest of every array. Remains of interrupted saves, and other things, may lie
beside it. Nothing here changes a file, except `replace_record`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from etils import epath

from jaxrl.config import ConfigError, text
from jaxrl.config.data_files import read_bytes
from jaxrl.runs import storage
from jaxrl.runs.checkpoint import array_files, checkpoint_record
from jaxrl.runs.checkpoint.checkpoint_files import COMMITTED, DELETED, is_step, length, plain_files
from jaxrl.runs.checkpoint.checkpoint_record import ImplausibleSize, Record

STATE, META = "state", "meta"  # items of a checkpoint
_META_FILE = f"{META}/metadata"  # what Orbax calls the file of a JSON item
# Folders that Orbax has not finished, or that are only partly deleted, are named STEP, this, and anything.
_UNFINISHED = (".orbax-checkpoint-tmp", DELETED)
_LONGEST_REASON = 300  # characters
# In one checkpoint: a few for each array and each process.
_MOST_ENTRIES = 50_000
# For finding out if a damaged checkpoint can be read at all.
_READING_SECONDS = 5.0
# tensorstore ends each message with pages of settings.
_DETAILS = re.compile(r" \[(tensorstore_spec|source locations|os_error_code)=.*", re.DOTALL)


class CheckpointError(ConfigError):
    """A checkpoint is missing, does not fit or cannot be reached."""


class CorruptCheckpoint(CheckpointError):
    """The files of a checkpoint can be read, but differ from the saved ones."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """The content of a folder of checkpoints.

    Attributes:
      steps: folders of complete checkpoints, ascending; not verified yet.
      unfinished: folders of interrupted saves or deletions.
      ignored: other entries with a checkpoint's name, and their kinds.
    """

    steps: Mapping[int, epath.Path]
    unfinished: tuple[epath.Path, ...]
    ignored: Mapping[epath.Path, str]


def open_folder(path: str | os.PathLike[str]) -> epath.Path:
    """The folder as Orbax needs it: with an absolute path if local."""
    storage.prepare(path)
    folder = epath.Path(path)
    return folder if storage.is_remote(folder) else folder.absolute()


def find(folder: epath.Path) -> Contents:
    """Lists the content of `folder`, which may be missing; OSError if the folder cannot be listed."""
    steps: dict[int, epath.Path] = {}
    unfinished = []
    ignored = {}
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
      CorruptCheckpoint: it is missing or is not the one that was saved.
      CheckpointError: it cannot be reached.
    """
    with _classify_errors(path):
        file = path / _META_FILE
        try:
            if (found := length(file)) > checkpoint_record.LARGEST:
                raise ImplausibleSize(f"{_META_FILE} has {text.size(found)}")
            record = checkpoint_record.parse(read_bytes(file).decode())
        except ImplausibleSize:
            raise
        except ValueError as error:
            raise ValueError(f"{_META_FILE}: {error}") from error
        if is_step(path.name) and record.step != int(path.name):
            raise ValueError(f"it was saved as the record of step {record.step}")
        return record


def replace_record(path: epath.Path, record: Record) -> None:
    """Replaces the record of the checkpoint `path` at once.

    Raises:
      OSError: it cannot be written; the old one then stays.
    """
    storage.write_whole(path / _META_FILE, json.dumps(record.sealed()))


def read_arrays(
    path: epath.Path, record: Record, fields: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint by `field/path`, whole, in host memory, each checked against its digest.

    `fields` are the fields of the state to read, such as `learner/policy`; None for all.

    Raises:
      CorruptCheckpoint: an array is missing or is not the one that was saved; the first one is named.
      CheckpointError: the files cannot be reached.
    """
    wanted = record.arrays if fields is None else record.part(fields)
    with _classify_errors(path):
        array_files.require_plausible_size(path / STATE, record.arrays)
        arrays = array_files.read(path / STATE, wanted) if wanted else {}
        found = checkpoint_record.describe(arrays)
        for name, described in wanted.items():
            if found[name] != described:
                raise ValueError(f"the array {name} is not what was saved")
    return arrays


def read_back(path: epath.Path, sealed: Mapping[str, Any]) -> None:
    """Checks that a checkpoint just written with the record `sealed` can be found and read; not its arrays.

    Raises:
      CorruptCheckpoint: the record is another, or an array or a part of a file is missing.
      CheckpointError: the files cannot be reached.
    """
    record = read_record(path)
    with _classify_errors(path):
        if record.sealed() != sealed:
            raise ValueError(f"{_META_FILE} is not what was written")
        array_files.require_present(path / STATE, record.arrays)


def damage(path: epath.Path) -> str | None:
    """Reads all of the checkpoint `path`; returns its first damage in words, None for an intact one.

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
def _classify_errors(path: epath.Path) -> Iterator[None]:
    """Raises errors of the block as CorruptCheckpoint, or as CheckpointError if files cannot be read."""
    try:
        _require_plain_entries(path)
        yield
    except CheckpointError:
        raise
    except MemoryError as error:
        shortage = str(error) or "there is not enough memory"
        raise CheckpointError(f"the checkpoint {path} cannot be read: {shortage}") from error
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


def _require_plain_entries(path: epath.Path) -> None:
    """Raises ValueError for entries that Orbax does not write: links lead anywhere, pipes can block."""
    if storage.is_remote(path):
        return
    entries = (os.path.join(at, name) for at, *names in os.walk(path) for name in itertools.chain(*names))
    for count, entry in enumerate(itertools.chain([os.fspath(path)], entries)):
        if count > _MOST_ENTRIES:
            raise ImplausibleSize(f"it holds more than {_MOST_ENTRIES:,} files")
        if not os.path.lexists(entry):
            continue  # missing entries are reported later
        mode = os.lstat(entry).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
            raise ValueError(f"{entry} is {kind}")


def _why_unreadable(path: epath.Path) -> str | None:
    """Reads the files below `path` for a limited time; returns the reason why that fails, or None."""
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
    # A folder of a bucket that is out of reach at the moment would look like a missing one.
    listed = storage.entries(folder) if storage.is_remote(folder) else None
    names = listed if listed is not None else [e.name for e in folder.iterdir()] if folder.exists() else []
    for name in sorted(names):
        suffix = next((s for s in _UNFINISHED if s in name), None)
        if is_step(name.partition(suffix)[0] if suffix else name):
            entry = folder / name
            yield entry, _kind(entry) if listed is None else "folder" if listed[name] else "a file"


def _kind(entry: epath.Path) -> str:
    """The kind of `entry`; "folder" only if it holds files or cannot be listed."""
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
