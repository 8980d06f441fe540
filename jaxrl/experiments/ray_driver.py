"""python -m jaxrl.experiments.ray_driver FOLDER: lets a Ray cluster run the cells of an experiment."""

from __future__ import annotations

import json
import logging
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
from jaxrl.experiments.folder import ExperimentFolder
from jaxrl.experiments.options import ExperimentOptions, from_mapping
from jaxrl.experiments.ray_cells import stop_file
from jaxrl.experiments.results import read_results
from jaxrl.experiments.runner import CellRunner
from jaxrl.runs.device_share import DeviceShare
from jaxrl.runs.executor import usable_cores
from jaxrl.runs.signals import Interruption

LOCAL = "local"
_RETRIES = 2  # of a cell whose node was lost; it resumes from its checkpoint
_POLL_SECONDS = 0.2


def run_cell(folder: str, name: str) -> dict[str, Any]:
    """Runs a cell on this node, from where it was.

    Returns:
      `cell`, its name; `why` it failed, "" if it did not, None if it was interrupted; and what it `said`.

    Raises:
      RunError: this node does not see the folder.
    """
    node = f"{os.uname().nodename} ({ray.get_runtime_context().get_node_id()[:8]})"
    if not Path(folder, "config.json").exists():
        raise RunError(f"{node} does not see {folder}: all nodes must share --output-dir")
    plan = _plan(folder)
    if plan.options.num_devices == 0:
        os.environ["JAX_PLATFORMS"] = "cpu"
    (cell,) = (cell for cell in plan.cells if cell.name == name)
    interruption, said = Interruption(), [f"{name}: on {node}"]
    threading.Thread(target=_watch, args=(stop_file(plan.folder), interruption), daemon=True).start()
    why = CellRunner(plan, cell, DeviceShare(), interruption, said.append).run()
    return {"cell": name, "why": why, "said": said}


def _watch(stop: Path, interruption: Interruption) -> None:
    while not stop.exists():
        time.sleep(_POLL_SECONDS)
    interruption.adopt(signal.SIGTERM)


def _plan(folder: str) -> ExperimentPlan:
    place, stored = ExperimentFolder.stored(folder)
    return ExperimentPlan.of(from_mapping(stored, folder), place.path)


def drive(plan: ExperimentPlan) -> str:
    """Runs the cells that have not finished; returns a problem of the cluster, or ""."""
    resources = _resources(plan.options)
    if problem := _lacking(resources):
        return problem
    task = ray.remote(num_cpus=resources["CPU"], num_gpus=resources["GPU"], max_retries=_RETRIES)(run_cell)
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


def _resources(options: ExperimentOptions) -> dict[str, float]:
    """The resources of each cell."""
    gpus = options.gpus_per_cell
    if gpus is None:
        gpus = 1 if options.num_devices != 0 and ray.cluster_resources().get("GPU", 0) else 0
    return {"CPU": options.cpus_per_cell, "GPU": gpus}


def _lacking(resources: Mapping[str, float]) -> str:
    """A message about the first resource that no node has enough of; "" if all suffice."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, count in resources.items():
        most = max(node.get(name, 0) for node in nodes)
        if count > most:
            flag = f"--{name.lower()}s-per-cell"
            return f"`{flag}` (={count:g}): no node of the cluster has more than {most:g}"
    return ""


def _connect(address: str) -> None:
    given: dict[str, Any] = {"address": address, "logging_level": logging.ERROR}
    if not address.startswith("ray://"):
        given |= {"log_to_driver": False}
    if address == LOCAL:
        given |= {"include_dashboard": False, "num_cpus": len(usable_cores())}
    ray.init(**given)


def main(folder: str) -> int:
    """Connects to Ray and drives it there; returns the exit code (2: the cluster cannot be used)."""
    plan = _plan(folder)
    address = plan.options.ray_address
    try:
        _connect(address)
    except Exception as error:  # Which one depends on the address.
        print(f"error: `--ray-address` (={address!r}) cannot be used: {one_line(error)}", file=sys.stderr)
        return 2
    # SIGTERM means that the experiment was killed. With the file its cells save first.
    signal.signal(signal.SIGTERM, lambda *_: stop_file(plan.folder).touch())
    try:
        problem = drive(plan)
    finally:
        ray.shutdown()
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    return 2 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
