"""A Ray cluster, as a command and the process that drives Ray for it use it.

The driver is a child process: thus Ray's threads, handlers and output stay out of the command and of its
caller. A signal reaches one machine; a file that all nodes see asks all work to save and end.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError
from jaxrl.config.text import one_line
from jaxrl.runs import child_process
from jaxrl.runs.child_process import KILL_AFTER, child_environment, reason
from jaxrl.runs.executor import usable_cores

LOCAL = "local"  # the address of a Ray that is started on this machine
RETRIES = 2  # of work whose node was lost; it resumes from its checkpoint
_UNUSABLE = 2  # exit code of a driver whose cluster cannot be used
# Nothing is sent to Ray's makers.
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


def start_driver(
    module: str, argument: str, settings: Mapping[str, str] | None = None, **streams: Any
) -> subprocess.Popen[bytes]:
    """Starts the module that drives Ray, whose `main` ends with `drive`.

    Args:
      module: run by `python -m`, with `argument`.
      settings: more variables of its environment.
      streams: of `subprocess.Popen`.
    """
    return subprocess.Popen(
        child_process.command(module, argument),
        stdin=subprocess.DEVNULL,
        env=child_environment() | _SETTINGS | dict(settings or {}),
        start_new_session=True,  # Ctrl-C is for the command, which then asks everything to save.
        **streams,
    )


def end_driver(process: subprocess.Popen[bytes], stop: Path) -> None:
    """Lets everything save, and waits until Ray has ended; `stop` is the file that asks for it."""
    if process.poll() is None:
        stop.touch()
        try:
            process.wait(KILL_AFTER)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def require_success(process: subprocess.Popen[bytes], log: Path) -> None:
    """Raises if a driver that has ended failed; `log` is what it said.

    Raises:
      ConfigError: the cluster cannot be used.
      RunError: Ray failed.
    """
    if process.returncode:
        error = ConfigError if process.returncode == _UNUSABLE else RunError
        raise error(f"{reason(process.returncode, log)} (see {log})")


def drive(address: str, flag: str, stop: Path, work: Callable[[], str]) -> int:
    """Connects to Ray and does the work there; returns the exit code of the driver.

    Args:
      address: of a cluster, or `LOCAL`.
      flag: the one that says the address.
      stop: the file that asks for an end. SIGTERM means that the command was killed: Ray would end at once,
        with the file everything saves first.
      work: returns a problem of the cluster, or "".
    """
    import ray

    try:
        _connect(address)
    except Exception as error:  # Which one depends on the address.
        where = "Ray on this machine" if address == LOCAL else f"`{flag}` (={address!r})"
        return _refuse(f"{where} cannot be used: {one_line(error)}")
    signal.signal(signal.SIGTERM, lambda *_: stop.touch())
    try:
        problem = work()
    finally:
        ray.shutdown()
    return _refuse(problem) if problem else 0


def _connect(address: str) -> None:
    import ray

    given: dict[str, Any] = {"address": address, "logging_level": logging.ERROR}
    if not address.startswith("ray://"):
        given |= {"log_to_driver": False}
    if address == LOCAL:
        given |= {"include_dashboard": False, "num_cpus": len(usable_cores())}
    ray.init(**given)


def _refuse(problem: str) -> int:
    print(f"error: {problem}", file=sys.stderr)
    return _UNUSABLE


def resources(cpus: int, gpus: float | None) -> dict[str, float]:
    """The resources of each piece of work; `gpus` None: one where the cluster has any."""
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
