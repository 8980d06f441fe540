"""Files that a reader finds whole: the old content or the new, whatever interrupts the writer."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

PARTIAL = ".tmp"  # ends the name of a file that is about to replace another


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is an address such as gs://bucket/folder."""
    return "://" in os.fspath(path)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Gives a stream for the new content of a local file, which replaces the old at the end of the block.

    Raises:
      OSError: it cannot be written. The old file is then as it was.
    """
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
    """An opener for `open` that fails for a symbolic link: what is appended stays in its folder."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def require_no_links(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Raises OSError where `path`, or a folder between `folder` and it, is a symbolic link.

    `folder` itself may be one: whoever named it chose that.
    """
    inner = Path(path).relative_to(folder)
    for part in (inner, *inner.parents):
        if part.parts and (place := Path(folder) / part).is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", os.fspath(place))


def discard(stream: TextIO) -> None:
    """Lets whatever is written to a broken stream, also on the way out of Python, go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Makes `text`, in UTF-8, the content of a local file; raises as `replacing`."""
    with replacing(path) as stream:
        stream.write(text.encode())
