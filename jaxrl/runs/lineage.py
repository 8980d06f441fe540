"""The copies between the members of a population, a JSON line for each, in the folder of their search."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from etils import epath

from jaxrl.config.data_files import read_objects
from jaxrl.config.local_files import replace_text

_FILE = "lineage.jsonl"


class Lineage:
    """A file of copies: `step`, `member`, `source`, `score`, `source_score`, and the `values` taken over."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        """Reads and writes that file, which need not exist."""
        self._file = epath.Path(file)

    @classmethod
    def of(cls, search: str | os.PathLike[str]) -> Lineage:
        """The copies of a search, in its folder."""
        return cls(epath.Path(search) / _FILE)

    @property
    def path(self) -> str:
        return os.fspath(self._file)

    def read(self) -> list[dict[str, Any]]:
        """All copies, without damaged lines; raises OSError if there is a file that cannot be read."""
        return list(read_objects(self._file)) if self._file.exists() else []

    def append(self, copies: Iterable[Mapping[str, Any]]) -> None:
        """Adds copies, which then survive a kill."""
        with open(self._file, "a") as file:
            file.writelines(json.dumps(copy) + "\n" for copy in copies)
            file.flush()
            os.fsync(file.fileno())

    def rewind(self, step: int) -> None:
        """Forgets the copies after `step`."""
        if self._file.exists():
            kept = [copy for copy in self.read() if copy["step"] <= step]
            replace_text(self._file, "".join(json.dumps(copy) + "\n" for copy in kept))

    def latest_copy_steps(self) -> dict[str, int]:
        """The step of the latest copy that each member took over, by its name."""
        return {copy["member"]: copy["step"] for copy in self.read()}
