"""python -m jaxrl.experiments.ray_driver FOLDER: lets a Ray cluster run the cells of an experiment."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from jaxrl.config.errors import RunError
from jaxrl.config.text import one_line
from jaxrl.experiments.cells import ExperimentPlan
from jaxrl.experiments.experiment_options import from_mapping
from jaxrl.experiments.folder import ExperimentFolder
from jaxrl.experiments.ray_cells import stop_file
from jaxrl.experiments.results import read_results
from jaxrl.experiments.runner import CellRunner
from jaxrl.runs import ray_cluster
from jaxrl.runs.device_share import DeviceShare
from jaxrl.runs.signals import Interruption

_FLAGS = {"CPU": "--cpus-per-cell", "GPU": "--gpus-per-cell"}
_POLL_SECONDS = 0.2


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
    threading.Thread(target=_watch, args=(stop_file(plan.folder), interruption), daemon=True).start()
    why = CellRunner(plan, cell, DeviceShare(), interruption, said.append).run()
    return {"cell": name, "why": why, "said": said}


def _watch(stop: Path, interruption: Interruption) -> None:
    while not stop.exists():
        time.sleep(_POLL_SECONDS)
    interruption.adopt(signal.SIGTERM)


def _plan(folder: str) -> ExperimentPlan:
    place, stored = ExperimentFolder.open(folder)
    return ExperimentPlan.of(from_mapping(stored, folder), place.path)


def drive(plan: ExperimentPlan) -> str:
    """Runs the cells that have not finished; returns a problem of the cluster, or ""."""
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
            _tell({"cell": cell.name, "why": "", "said": [f"{cell.name}: finished before"]})
        else:
            waiting[task.remote(str(plan.folder), cell.name)] = cell.name
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        name = waiting.pop(ready)
        try:
            _tell(ray.get(ready))
        except ray.exceptions.RayError as error:
            why = one_line(getattr(error, "cause", None) or error)
            _tell({"cell": name, "why": why, "said": [f"{name}: failed: {why}"]})
    return ""


def _tell(message: Mapping[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main(folder: str) -> int:
    """Connects to Ray and drives it there; returns the exit code of `ray_cluster.drive`."""
    plan = _plan(folder)
    return ray_cluster.drive(
        plan.options.ray_address, "--ray-address", stop_file(plan.folder), lambda: drive(plan)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
