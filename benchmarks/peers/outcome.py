"""Shared by all runners: the task, the clock and the one line in which they report. Standard library only.

Import this before anything slow: the clock starts here.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import resource
import subprocess
import sys
import time
from typing import Any

_MARK = "jaxrl-benchmark-outcome: "
_START = time.perf_counter()


def task() -> dict[str, Any]:
    """The command line's one argument, JSON: `job`, `work`, `num_envs`, `steps`, `path`, ..."""
    return json.loads(sys.argv[1])


def since_start() -> float:
    """Seconds since this module was imported."""
    return time.perf_counter() - _START


def versions(*packages: str) -> dict[str, str]:
    """Of Python and of those of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit(checkout: str) -> str:
    """The commit that a folder has checked out."""
    done = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown commit"


def iterations(steps: int, steps_per_iteration: int) -> int:
    """As many as cover `steps`, at least one."""
    return max(1, math.ceil(steps / steps_per_iteration))


def rollout_steps(task: dict[str, Any]) -> int:
    """Steps of whole rollouts that cover the task's."""
    per_rollout = task["num_envs"] * task["rollout_length"]
    return per_rollout * iterations(task["steps"], per_rollout)


def report(**fields: Any) -> None:
    """Prints the outcome; `read` finds it among whatever else was printed."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(_MARK + json.dumps({**fields, "peak_bytes": peak}), flush=True)


def read(output: str) -> dict[str, Any] | None:
    """The outcome in what a runner printed; None where it reported none."""
    lines = [line for line in output.splitlines() if line.startswith(_MARK)]
    return json.loads(lines[-1].removeprefix(_MARK)) if lines else None
