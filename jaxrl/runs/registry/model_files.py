"""The interface of the disk or bucket that holds a registry. Paths are relative to its root."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


def versions_folder(name: str, number: int) -> str:
    return f"{name}/versions/{number}"


class ModelFiles(Protocol):
    """The files of a registry. Every method may raise OSError, or a ConfigError for a bucket that fails."""

    def folders(self, path: str) -> list[str]:
        """Names of the folders in a folder, sorted; empty if it is missing."""
        ...

    def exists(self, path: str) -> bool:
        """True if there is such a file."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Replaces a small file at once."""
        ...

    def pointer(self, name: str, stage: str) -> int | None:
        """The number of the version that a stage points at."""
        ...

    def point(self, name: str, stage: str, number: int) -> None:
        """Moves a stage in one step."""
        ...

    def publish(self, folder: Path, path: str) -> bool:
        """Makes the files of a local folder appear at `path` together; False if that is taken."""
        ...

    def fetch(self, path: str) -> AbstractContextManager[Path]:
        """A local folder with the files below `path`."""
        ...

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Keeps other writers of a model out, as far as the storage can."""
        ...
