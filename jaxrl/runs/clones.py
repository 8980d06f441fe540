"""The record of a clone, which its run folder has beside its checkpoints."""

from __future__ import annotations

from jaxrl.config.data_files import read_object

REPORT = "clone"


def failed_check(run: str) -> bool:
    """True of a clone that is no better than a policy that sees nothing; False before it is there."""
    try:
        found = read_object(f"{run}/{REPORT}.json")
    except (OSError, ValueError):
        return False
    return found.get("passed") is False
