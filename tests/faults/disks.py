"""Small disks to fill and to break. Only root can mount them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def ext4(place: Path, size: str = "8M") -> Iterator[Path]:
    """A disk on which a folder takes a block, and so fails where nothing is free; elsewhere it may not."""
    image, disk = place / "disk.img", place / "disk"
    disk.mkdir()
    commands = (
        ["truncate", f"--size={size}", image],
        # Half of the space for files: without room for the bookkeeping of a journal and of reserved blocks.
        ["mkfs.ext4", "-q", "-N", "2000", "-m", "0", "-O", "^has_journal", image],
        ["mount", "-o", "loop,errors=remount-ro", image, disk],
    )
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            pytest.skip(f"there is no {command[0]}")
        if done.returncode:
            pytest.skip("only root can mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def fill(file: Path) -> None:
    """Writes until the disk is full to the last block."""
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as stream:
        while stream.write(bytes(1024)):
            pass
