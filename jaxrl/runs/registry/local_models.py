"""The files of a registry on a disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from jaxrl.config.data_files import read_bytes
from jaxrl.config.local_files import PARTIAL, no_link, replacing, require_no_links

_TARGET = re.compile(r"versions/([0-9]{1,9})")
_LARGEST_SMALL_FILE = 2**24


class LocalModels:
    """A folder whose versions are renamed into place and whose stages are symbolic links."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folders(self, path: str) -> list[str]:
        try:
            entries = os.scandir(self._root / path)
            found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if not name.startswith("."))

    def exists(self, path: str) -> bool:
        return (self._root / path).is_file()

    def read(self, path: str) -> bytes:
        return read_bytes(self._root / path, _LARGEST_SMALL_FILE)

    def write(self, path: str, content: bytes) -> None:
        file = self._place_of(path)
        with replacing(file) as stream:
            stream.write(content)

    def pointer(self, name: str, stage: str) -> int | None:
        try:
            target = os.readlink(self._root / name / stage)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
                return None
            raise
        match = _TARGET.fullmatch(target)
        return int(match[1]) if match else None

    def point(self, name: str, stage: str, number: int) -> None:
        link = self._place_of(f"{name}/{stage}")
        new = link.with_name(f".{stage}{PARTIAL}")
        new.unlink(missing_ok=True)  # From a kill.
        new.symlink_to(f"versions/{number}")
        os.replace(new, link)
        _flush(link.parent)

    def publish(self, folder: Path, path: str) -> bool:
        target = self._place_of(path)
        new = target.with_name(f".{target.name}{PARTIAL}")
        shutil.rmtree(new, ignore_errors=True)  # From a kill; the lock ensures that nobody writes it now.
        shutil.copytree(folder, new)
        new.chmod(stat.S_IMODE(target.parent.stat().st_mode))  # Not a temporary folder's.
        for file in (*new.rglob("*"), new):
            _flush(file)
        try:
            os.rename(new, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            shutil.rmtree(new, ignore_errors=True)
            return False
        _flush(target.parent)
        return True

    @contextlib.contextmanager
    def fetch(self, path: str) -> Iterator[Path]:
        yield self._root / path

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """The kernel gives the lock back when the process ends, for any reason."""
        file = self._place_of(f"{name}/.lock")
        with os.fdopen(no_link(os.fspath(file), os.O_RDWR | os.O_CREAT), "r+") as stream:
            with contextlib.suppress(OSError):  # A file system may have no locks.
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _place_of(self, path: str) -> Path:
        """The place of a file, in a folder that exists and is reached without links."""
        place = self._root / path
        require_no_links(self._root, place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def _flush(path: Path) -> None:
    """Waits until a file or the entries of a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
