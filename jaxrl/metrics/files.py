"""Files that a reader finds whole: the old content or the new, whatever interrupts the writer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

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
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Makes `text`, in UTF-8, the content of a local file; raises as `replacing`."""
    with replacing(path) as stream:
        stream.write(text.encode())
