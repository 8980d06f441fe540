"""The host, the command and the commits that a run was started from."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SECONDS = 5.0  # for git to answer
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
_COMMIT = "# branch.oid "
_LONGEST = 4_000  # characters of a command


@functools.cache
def commits() -> Mapping[str, Mapping[str, Any]]:
    """`{"jaxrl": {"commit": ..., "clean": ...}, "working_directory": ...}`, as at the first call.

    `clean`: no file under version control differs from the commit. An entry is missing if there is
    no repository, no commit or no git; the working directory's also if it is jaxrl's checkout.
    """
    checkout = Path(__file__).parents[2]
    places = {"jaxrl": checkout if (checkout / ".git").exists() else None}
    with contextlib.suppress(OSError):
        here = Path.cwd()
        own = next((place for place in (here, *here.parents) if (place / ".git").exists()), None)
        places["working_directory"] = own if own != checkout else None
    return {name: found for name, place in places.items() if place and (found := commit_of(place))}


def commit_of(repository: Path) -> dict[str, Any] | None:
    """The commit of a repository and if its files are as in it; None if git does not report it."""
    # A hook that starts a run has GIT_DIR set.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [*_GIT, "-C", os.fspath(repository), *_STATUS]
    try:
        said = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    lines = said.stdout.splitlines()
    commit = next((line.removeprefix(_COMMIT) for line in lines if line.startswith(_COMMIT)), "(initial)")
    if said.returncode or commit == "(initial)":
        return None
    return {"commit": commit, "clean": all(line.startswith("#") for line in lines)}


def origin() -> dict[str, str]:
    """`{"host": ..., "command": ...}` of this process; a long command is cut off."""
    command = shlex.join(sys.orig_argv)
    return {"host": socket.gethostname(), "command": command[:_LONGEST]}
