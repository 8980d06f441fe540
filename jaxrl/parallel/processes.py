"""The processes that make up a run, from flags, environment variables or the launcher. Imports no jax."""

from __future__ import annotations

import dataclasses
import glob
import importlib.util
from collections.abc import Mapping

from jaxrl.config.errors import ConfigError, RunError

HEARTBEAT_SECONDS = 60
JOIN_SECONDS = 300
WATCHDOG_SECONDS = 1800
# Environment variables that stand in for flags; JAX itself reads the first.
VARIABLES = {
    "coordinator": "JAX_COORDINATOR_ADDRESS",
    "num_processes": "JAX_NUM_PROCESSES",
    "process_id": "JAX_PROCESS_ID",
}


class LostProcess(RunError):
    """Another process of the run has ended, or cannot be reached."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: launchers restart the process


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes of a run, as one of them sees them.

    Attributes:
      coordinator: HOST:PORT at which the first process serves the others; None if the launcher knows it.
      num_processes: the number of processes; None if the launcher knows it.
      process_id: the index of this one, from 0; None if the launcher knows it.
      launcher: the program that started them, such as "SLURM"; None without one.
      heartbeat: seconds without a heartbeat after which a process counts as lost.
      watchdog: seconds without progress after which this process ends itself; 0: never.
      join: seconds to wait for the others at the start.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    launcher: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS
    watchdog: int = 0
    join: int = JOIN_SECONDS

    @property
    def alone(self) -> bool:
        """True if the run has only one process."""
        return self.launcher is None and self.coordinator is None


def find(
    environ: Mapping[str, str],
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    heartbeat: int = HEARTBEAT_SECONDS,
    watchdog: int | None = None,
    join: int = JOIN_SECONDS,
) -> Processes:
    """Finds the processes of the run from the arguments, then environment variables, then the launcher.

    The arguments are as in `Processes`; None if not given.

    Raises:
      ConfigError: a value is invalid, or missing and no launcher knows it.
    """
    coordinator = coordinator or environ.get(VARIABLES["coordinator"]) or None
    if num_processes is None:
        num_processes = _number(environ, "num_processes")
    if process_id is None:
        process_id = _number(environ, "process_id")
    if num_processes == 1:
        return Processes(watchdog=watchdog or 0)
    given = (coordinator, num_processes, process_id)
    # With everything given there is no need for a launcher.
    launcher = None if None not in given else find_launcher(environ)
    if launcher is None and given == (None, None, None):
        return Processes(watchdog=watchdog or 0)
    if launcher == OPEN_MPI and not environ.get(_OPEN_MPI_ADDRESS):
        # Since version 5 it gives no address, but still the number of processes and each one's index.
        num_processes = num_processes or int(environ["OMPI_COMM_WORLD_SIZE"])
        process_id = int(environ["OMPI_COMM_WORLD_RANK"]) if process_id is None else process_id
        launcher = None
    if launcher is None:
        given = (coordinator, num_processes, process_id)
        missing = [name for name, value in zip(VARIABLES, given, strict=True) if value is None]
        if missing:
            flag = missing[0]
            variable = VARIABLES[missing[0]]
            raise ConfigError(f"`--{flag}` is missing (or {variable}): a run of several processes needs it")
    _check(coordinator, num_processes, process_id)
    watchdog = WATCHDOG_SECONDS if watchdog is None else watchdog
    return Processes(coordinator, num_processes, process_id, launcher, heartbeat, watchdog, join)


_MOST_DIGITS = 6
SLURM = "SLURM"
OPEN_MPI = "Open MPI"
KUBERNETES = "Kubernetes"
CLOUD_TPU = "Cloud TPU"
_OPEN_MPI_ADDRESS = "OMPI_MCA_orte_hnp_uri"


def find_launcher(environ: Mapping[str, str]) -> str | None:
    """The launcher of several processes, from environment variables alone; waits for nothing."""
    if int(environ.get("SLURM_NTASKS") or 1) > 1 and "SLURM_STEP_NODELIST" in environ:
        return SLURM
    if int(environ.get("OMPI_COMM_WORLD_SIZE") or 1) > 1:
        return OPEN_MPI
    if "KUBERNETES_SERVICE_HOST" in environ and "JOB_COMPLETION_INDEX" in environ:
        # JAX asks the Kubernetes API for the address of the first pod, which needs the package `kubernetes`.
        return KUBERNETES if importlib.util.find_spec("kubernetes") else None
    return CLOUD_TPU if _on_cloud_tpu(environ) else None


def _on_cloud_tpu(environ: Mapping[str, str]) -> bool:
    if environ.get("JAX_PLATFORMS", "tpu") not in ("", "tpu", "tpu,cpu"):
        return False
    hosts = environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES")
    if hosts is not None:
        return "," in hosts
    if "TPU_SKIP_MDS_QUERY" in environ or not importlib.util.find_spec("libtpu"):
        return False
    # A virtual machine with TPU chips; its metadata server knows the other hosts of the slice.
    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def _number(environ: Mapping[str, str], name: str) -> int | None:
    variable = VARIABLES[name]
    text = environ.get(variable)
    if not text:
        return None
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ConfigError(f"`{variable}` (={text!r}) must be an integer of at most {_MOST_DIGITS} digits")
    return int(text)


def _check(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    if coordinator is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ConfigError(f"`--coordinator` (={coordinator!r}) must be HOST:PORT")
    if num_processes is not None and num_processes < 1:
        raise ConfigError(f"`--num_processes` (={num_processes}) must be at least 1")
    if process_id is not None and not 0 <= process_id < (num_processes or process_id + 1):
        rule = f"lie between 0 and `--num_processes` - 1 (={(num_processes or 0) - 1})"
        raise ConfigError(f"`--process_id` (={process_id}) must {rule}")
