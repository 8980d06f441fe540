"""The members of a population: their folders, and the copies between them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from etils import epath

from jaxrl.config.data_files import read_objects
from jaxrl.config.errors import ConfigError
from jaxrl.config.local_files import replace_text
from jaxrl.runs import records, storage
from jaxrl.runs.records import MEMBERS


def member_folders(workdir: str) -> list[str]:
    """The run folders of a population's members, by name; empty for a single run."""
    folder = epath.Path(workdir) / MEMBERS
    with storage.as_os_errors():
        found = folder.iterdir() if folder.is_dir() else ()
        return [str(member) for member in sorted(found, key=lambda each: (len(each.name), each.name))]


def population_of(path: str) -> str | None:
    """The folder of the population with the member's run `path`; None of a single run."""
    folder = epath.Path(path)
    return str(folder.parent.parent) if folder.parent.name == MEMBERS else None


def pace_of_all(workdir: str) -> float | None:
    """Steps per second of the members of a population together; None before all are done."""
    with contextlib.suppress(OSError, ConfigError), storage.as_os_errors():
        found = (records.read_summary(epath.Path(workdir)) or {}).get("steps_per_second")
        return float(found) if found else None
    return None


def with_policy(workdir: str) -> str:
    """The folder with the policy of a run: the run's own, or of a population the best member's.

    Raises:
      ConfigError: a population is not done, so that it has no best member yet.
    """
    members = member_folders(workdir)
    if not members:
        return workdir
    try:
        summary = records.read_summary(epath.Path(workdir)) or {}
    except (OSError, ConfigError):
        summary = {}
    best = os.path.join(workdir, str(summary.get("best_member")))
    if best not in members:  # No file in the named folder can make it read anything outside.
        text = "holds a population that is not done: name a member, such as"
        raise ConfigError(f"`--workdir` (={workdir}) {text} {members[0]}")
    return best


class Lineage:
    """Lines of JSON: `step`, `member`, `source`, `score`, `source_score`, and the `values` taken over."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        """Reads and writes that file, which need not exist."""
        self._file = epath.Path(file)

    @classmethod
    def of(cls, search: str | os.PathLike[str]) -> Lineage:
        """The copies of a search, in its folder."""
        return cls(epath.Path(search) / "lineage.jsonl")

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
