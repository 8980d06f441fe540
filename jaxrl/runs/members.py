"""The members of a population, for readers of its folder."""

from __future__ import annotations

import contextlib
import os

from etils import epath

from jaxrl.config.errors import ConfigError
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
