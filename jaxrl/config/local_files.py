"""Files that are replaced at once: a reader finds the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

PARTIAL = ".tmp"  # the end of the name of a file that is about to replace another


def is_remote(path: str | os.PathLike[str]) -> bool:
    """True if `path` is an address such as gs://bucket/folder."""
    return "://" in os.fspath(path)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A stream for new content of a local file, which replaces the old unless the block raises an error."""
    part = Path(path).with_name(f".{Path(path).name}{PARTIAL}")
    part.unlink(missing_ok=True)  # From a kill, or a link that leads elsewhere.
    try:
        with part.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def no_link(path: str, flags: int) -> int:
    """Opener for `open` that refuses symbolic links, so that files appended to stay in their folder.

    Pipes and devices are refused too; a pipe would wait for its reader.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    return descriptor


def require_no_links(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Raises OSError if `path`, or a folder between `folder` and it, is a symbolic link.

    `folder` itself may be one: the user chose it.
    """
    inner = Path(path).relative_to(folder)
    for part in (inner, *inner.parents):
        if part.parts and (place := Path(folder) / part).is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", os.fspath(place))


def discard(stream: TextIO) -> None:
    """Discards everything that is written to a broken stream, also when Python exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Replaces the content of a local file by `text` in UTF-8; raises as `replacing` does."""
    with replacing(path) as stream:
        stream.write(text.encode())
