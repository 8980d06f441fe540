"""Cells on a Ray cluster.

`python -m jaxrl.experiments.ray_cells FOLDER` drives Ray in a child process of the command; what it tells of
cells are lines of a file, which the command follows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxrl.config.data_files import read_objects
from jaxrl.config.errors import RunError
from jaxrl.config.text import one_line
from jaxrl.experiments.cells import ExperimentCell, ExperimentFolder, ExperimentPlan
from jaxrl.experiments.experiment_options import from_mapping
from jaxrl.experiments.results import read_results
from jaxrl.experiments.runner import CellRunner
from jaxrl.runs import ray_cluster
from jaxrl.runs.child_process import POLL_SECONDS, DeviceShare
from jaxrl.runs.signals import Interruption

_FLAGS = {"CPU": "--cpus-per-cell", "GPU": "--gpus-per-cell"}
_MESSAGES = ".ray.cells.jsonl"


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
    cells = {cell.name: cell for cell in plan.cells}
    messages = plan.folder / _MESSAGES
    messages.write_text("")
    known = 0

    def follow() -> None:
        nonlocal known
        for told in list(read_objects(messages))[known:]:
            known += 1
            for line in told["said"]:
                say(line)
            if told["why"] is not None:
                ended(cells[told["cell"]], told["why"])

    ray_cluster.run_driver("jaxrl.experiments.ray_cells", plan.folder, plan.folder, interruption, say, follow)


def run_cell(folder: str, name: str) -> dict[str, Any]:
    """Runs a cell on this node, from where it was.

    Returns:
      `cell`, its name; `why` it failed, "" if it did not, None if it was interrupted; and what it `said`.

    Raises:
      RunError: this node does not see the folder.
    """
    node = ray_cluster.this_node()
    if not Path(folder, "config.json").exists():
        raise RunError(f"{node} does not see {folder}: all nodes must share --output-dir")
    plan = _plan(folder)
    if plan.options.num_devices == 0:
        os.environ["JAX_PLATFORMS"] = "cpu"
    (cell,) = (cell for cell in plan.cells if cell.name == name)
    interruption = Interruption()
    said = [f"{name}: on {node}"]
    stop = ray_cluster.stop_file(plan.folder)
    threading.Thread(target=_watch, args=(stop, interruption), daemon=True).start()
    why = CellRunner(plan, cell, DeviceShare(), interruption, said.append).run()
    return {"cell": name, "why": why, "said": said}


def _watch(stop: Path, interruption: Interruption) -> None:
    while not stop.exists():
        time.sleep(POLL_SECONDS)
    interruption.adopt(signal.SIGTERM)


def _plan(folder: str) -> ExperimentPlan:
    place, stored = ExperimentFolder.open(folder)
    return ExperimentPlan.of(from_mapping(stored, folder), place.path)


def drive(plan: ExperimentPlan) -> str:
    """Runs the cells that have not finished; returns a problem of the cluster, or ""."""
    import ray

    options = plan.options
    gpus = 0 if options.gpus_per_cell is None and options.num_devices == 0 else options.gpus_per_cell
    resources = ray_cluster.resources(options.cpus_per_cell, gpus)
    if problem := ray_cluster.shortage(resources, _FLAGS):
        return problem
    given = {"num_cpus": resources["CPU"], "num_gpus": resources["GPU"]}
    task = ray.remote(**given, max_retries=ray_cluster.RETRIES)(run_cell)
    waiting = {}
    for cell in plan.cells:
        if read_results(cell) is not None:
            _tell(plan, {"cell": cell.name, "why": "", "said": [f"{cell.name}: finished before"]})
        else:
            waiting[task.remote(str(plan.folder), cell.name)] = cell.name
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        name = waiting.pop(ready)
        try:
            _tell(plan, ray.get(ready))
        except ray.exceptions.RayError as error:
            why = one_line(getattr(error, "cause", None) or error)
            _tell(plan, {"cell": name, "why": why, "said": [f"{name}: failed: {why}"]})
    return ""


def _tell(plan: ExperimentPlan, message: Mapping[str, Any]) -> None:
    with (plan.folder / _MESSAGES).open("a") as stream:
        stream.write(json.dumps(message) + "\n")


def main(folder: str) -> int:
    """Connects to Ray and drives it there; returns the exit code of `ray_cluster.drive`."""
    plan = _plan(folder)
    stop = ray_cluster.stop_file(plan.folder)
    return ray_cluster.drive(plan.options.ray_address, "--ray-address", stop, lambda: drive(plan))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
