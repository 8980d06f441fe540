"""A Ray cluster, as a command and the process that drives Ray for it use it.

The driver is a child process: thus Ray's threads, handlers and output stay out of the command and of its
caller. A signal reaches one machine; a file that all nodes see asks all work to save and end.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError
from jaxrl.config.text import one_line
from jaxrl.runs.child_process import ChildProcess
from jaxrl.runs.executor import usable_cores
from jaxrl.runs.signals import Interruption

LOCAL = "local"  # the address of a Ray that is started on this machine
RETRIES = 2  # of work whose node was lost; it resumes from its checkpoint
_UNUSABLE = 2  # exit code of a driver whose cluster cannot be used
# Nothing is sent to Ray's makers.
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


def stop_file(folder: Path) -> Path:
    """The file that asks all work in a folder, on all nodes, to save and end."""
    return folder / ".ray.stop"


def run_driver(
    module: str,
    argument: Path,
    folder: Path,
    interruption: Interruption,
    say: Callable[[str], object],
    follow: Callable[[], object],
    settings: Mapping[str, str] | None = None,
    locks: Sequence[IO[Any]] = (),
) -> None:
    """Runs the module that drives Ray, whose `main` ends with `drive`, until its work is done or has saved.

    Args:
      module, argument, say, settings, locks: of the child process.
      folder: of the work; its ray.log takes what Ray prints.
      follow: is called several times a second, and once after the end.

    Raises:
      ConfigError: the cluster cannot be used.
      RunError: Ray failed.
    """
    stop = stop_file(folder)
    stop.unlink(missing_ok=True)
    log = folder / "ray.log"
    driver = ChildProcess(
        "Ray",
        module,
        str(argument),
        log=log,
        locks=locks,
        settings={**_SETTINGS, **(settings or {})},
        say=say,
        ask=stop.touch,
    )
    why = driver.wait(interruption, follow)
    follow()
    if why and interruption.signum is None:
        raise (ConfigError if driver.code == _UNUSABLE else RunError)(f"{why} (see {log})")


def drive(address: str, flag: str, stop: Path, work: Callable[[], str]) -> int:
    """Connects to Ray and does the work there, which returns a problem or ""; returns the exit code.

    `flag` is the one with the address, and `stop` the file that requests an end. SIGTERM means that the
    command was killed: Ray would end at once, with the file everything saves first.
    """
    import ray

    try:
        given: dict[str, Any] = {"address": address, "logging_level": logging.ERROR}
        if not address.startswith("ray://"):
            given["log_to_driver"] = False
        if address == LOCAL:
            given |= {"include_dashboard": False, "num_cpus": len(usable_cores())}
        ray.init(**given)
    except Exception as error:  # Which one depends on the address.
        where = "Ray on this machine" if address == LOCAL else f"`{flag}` (={address!r})"
        return _refuse(f"{where} cannot be used: {one_line(error)}")
    signal.signal(signal.SIGTERM, lambda *_: stop.touch())
    try:
        problem = work()
    finally:
        ray.shutdown()
    return _refuse(problem) if problem else 0


def _refuse(problem: str) -> int:
    print(f"error: {problem}", file=sys.stderr)
    return _UNUSABLE


def resources(cpus: int, gpus: float | None) -> dict[str, float]:
    """The resources of each piece of work; `gpus` None: one if the cluster has any."""
    import ray

    if gpus is None:
        gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
    return {"CPU": cpus, "GPU": gpus}


def shortage(needed: Mapping[str, float], flags: Mapping[str, str]) -> str:
    """A message about the first resource that no node has enough of, by its flag; "" if all suffice."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for name, count in needed.items():
        most = max(node.get(name, 0) for node in nodes)
        if count > most:
            return f"`{flags[name]}` (={count:g}): no node of the cluster has more than {most:g}"
    return ""


def this_node() -> str:
    """The node that runs this piece of work, as logs name it."""
    import ray

    return f"{os.uname().nodename} ({ray.get_runtime_context().get_node_id()[:8]})"
