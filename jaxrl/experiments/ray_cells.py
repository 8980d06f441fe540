"""Cells on a Ray cluster, from the command's side: a child process drives Ray and tells of its cells."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError, installation
from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan
from jaxrl.runs import ray_cluster
from jaxrl.runs.signals import Interruption

_POLL_SECONDS = 0.2
_LOG = "ray.log"


def stop_file(folder: Path) -> Path:
    """The file that asks all cells, on all nodes, to save and end: a signal reaches one machine."""
    return folder / ".ray.stop"


def require_ray() -> None:
    """Raises ConfigError if Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"`--ray-address` needs the `ray` extra: {installation.command('ray')}")


def run_on_ray(
    plan: ExperimentPlan,
    interruption: Interruption,
    say: Callable[[str], object],
    ended: Callable[[ExperimentCell, str], object],
) -> None:
    """Runs all cells on the cluster of the options; arguments as of `run_cells`.

    Raises:
      ConfigError: the cluster cannot be reached, or no node has room for a cell.
      RunError: Ray failed.
    """
    stop = stop_file(plan.folder)
    log = plan.folder / _LOG
    stop.unlink(missing_ok=True)
    cells = {cell.name: cell for cell in plan.cells}
    with log.open("wb") as output:
        process = ray_cluster.start_driver(
            "jaxrl.experiments.ray_driver", str(plan.folder), stdout=subprocess.PIPE, stderr=output
        )
        watcher = threading.Thread(target=_watch, args=(process, interruption, stop), daemon=True)
        watcher.start()
        for told in _messages(process):
            for line in told["said"]:
                say(line)
            if told["why"] is not None:
                ended(cells[told["cell"]], told["why"])
        process.wait()
    if interruption.signum is None:
        ray_cluster.require_success(process, log)


def _messages(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The lines of the driver about its cells; other lines are Ray's."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if line.startswith(b'{"cell"'):
                yield json.loads(line)


def _watch(process: subprocess.Popen[bytes], interruption: Interruption, stop: Path) -> None:
    """Asks the cells to save after a signal, and ends the driver if they never do."""
    while process.poll() is None and interruption.signum is None:
        time.sleep(_POLL_SECONDS)
    ray_cluster.end_driver(process, stop)
