"""The record of a clone, which its run folder has beside its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etils import epath

from jaxrl.runs.records import stored_object

REPORT = "clone"
_MOST_STARTS = 16  # runs that start from one another
_COUNTED = {"episodes": int, "steps": int, "players": list, "digest": str}


def failed_check(run: str) -> bool:
    """True of a clone that is no better than a policy without observations; False before it is there."""
    return stored_object(f"{run}/{REPORT}.json").get("passed") is False


def data_of(run: str) -> dict[str, Any]:
    """The demonstrations that a policy has learnt from, in its run or in the runs that it started from.

    Returns:
      `folder` of the episodes and `run` that learnt from them; of a clone also their number as `episodes`,
      `steps`, `players` and `digest`. Empty if none are recorded.
    """
    for _ in range(_MOST_STARTS):
        path = epath.Path(run)
        if path.parent.name == "checkpoints":  # `init_from` may name one.
            path = path.parent.parent
        config = stored_object(path / "config.json")
        section = config.get(str(config.get("algorithm")))
        if isinstance(section, Mapping) and (folder := section.get("data")):
            report = stored_object(path / f"{REPORT}.json").get("data")
            known = report if isinstance(report, Mapping) else {}
            counted = {name: x for name, kind in _COUNTED.items() if isinstance(x := known.get(name), kind)}
            return {"folder": str(folder), "run": str(path), **counted}
        if not (start := config.get("init_from")):
            break
        run = str(start)
    return {}
