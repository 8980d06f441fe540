"""The members of a population, as whoever reads its folder finds them."""

from __future__ import annotations

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


def with_policy(workdir: str) -> str:
    """The folder whose policy is meant: the run's own, of a population the best member's.

    Raises:
      ConfigError: a population is not done, so that there is no best member yet.
    """
    members = member_folders(workdir)
    if not members:
        return workdir
    try:
        best = records.read_json(epath.Path(workdir) / "summary.json").get("best_member")
    except (OSError, ConfigError):
        best = None
    if not isinstance(best, str):
        text = "holds a population that is not done: name a member, such as"
        raise ConfigError(f"`--workdir` (={workdir}) {text} {members[0]}")
    return os.path.join(workdir, best)
