"""Operations on the files of checkpoints, independent of their contents: names, sizes, moves, deletion.

Symbolic links are never followed.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import stat
from collections.abc import Iterator

from etils import epath

from jaxrl.runs import storage

COMMITTED = "commit_success.txt"  # on gs:// the last file to be written of a checkpoint and of an item
_PROBE = 1 << 14  # bytes
DELETED = ".deleted"  # the end of the name of a folder that is being deleted


def is_step(name: str) -> bool:
    """True if `name` is the name of a checkpoint's folder."""
    return name.isascii() and name.isdigit() and str(int(name)) == name


def size(path: epath.Path) -> int:
    """Bytes of all files below `path`."""
    return sum(map(length, plain_files(path)))


def length(file: epath.Path) -> int:
    """Bytes of a file."""
    # `epath` looks up the name of its owner, which the machine may not know.
    return file.stat().length if storage.is_remote(file) else os.stat(file).st_size


def require_space(path: epath.Path) -> None:
    """Checks that a checkpoint at `path` can be written, by a small file; remains count as unfinished.

    Raises:
      OSError: a folder or a file cannot be written there.
    """
    if storage.is_remote(path):
        return
    probe = path.with_name(f"{path.name}{DELETED}")
    try:
        inner = os.path.join(probe, "probe")
        os.makedirs(inner, exist_ok=True)
        with open(os.path.join(inner, "probe"), "wb") as stream:
            stream.write(bytes(_PROBE))
            os.fsync(stream.fileno())
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def set_aside(path: epath.Path, folder: epath.Path) -> epath.Path:
    """Moves `path`, a file or a folder, into `folder` under an unused name; returns its new path.

    Raises:
      OSError: it cannot be moved.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = (path.name if n == 0 else f"{path.name}-{n}" for n in itertools.count())
    target = next(t for t in (folder / name for name in names) if not os.path.lexists(t) and not t.exists())
    if not storage.is_remote(path):
        shutil.move(os.fspath(path), os.fspath(target))
    else:
        copy_files(path, target)
        remove(path)
    return target


def copy_files(source: epath.Path, target: epath.Path) -> None:
    """Copies the files below `source`; the one that marks a checkpoint as complete comes last."""
    files = sorted(plain_files(source), key=lambda file: (file.name == COMMITTED, file))
    for file in files:
        copy = target / os.path.relpath(file, source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())


def remove(path: epath.Path) -> None:
    """Deletes a folder so that, if interrupted, its remains never count as a checkpoint.

    Raises:
      OSError: it cannot be deleted.
    """
    if not storage.is_remote(path):
        if is_step(path.name):
            doomed = path.with_name(f"{path.name}{DELETED}")
            if doomed.exists():
                _remove_local(doomed)
            os.rename(path, doomed)
            path = doomed
        _remove_local(path)
    else:
        (path / COMMITTED).unlink(missing_ok=True)
        path.rmtree()


def _remove_local(path: epath.Path) -> None:
    # `rmtree` refuses links itself, but in Python 3.13 its error has no text.
    if os.path.islink(path):
        raise NotADirectoryError(errno.ENOTDIR, "a symbolic link is not followed", os.fspath(path))
    shutil.rmtree(path)


def plain_files(path: epath.Path) -> Iterator[epath.Path]:
    """The plain files below `path`; raises for folders that cannot be listed."""

    def fail(error: OSError) -> None:
        raise error

    if not storage.is_remote(path):
        for folder, _, files in () if os.path.islink(path) else os.walk(path, onerror=fail):
            for name in files:
                if stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode):
                    yield epath.Path(folder) / name
        return
    yield from (epath.Path(file) for file in storage.files_below(path))
