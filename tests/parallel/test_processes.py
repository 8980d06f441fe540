"""Which processes make a run: flags, environment variables, launchers; and what is refused."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from jaxrl.config import ConfigError
from jaxrl.parallel import processes
from jaxrl.parallel.processes import Processes

SLURM = {"SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "node[1-4]", "SLURM_PROCID": "2"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}


def with_package(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these packages were installed, and no other."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in names else None)


def test_a_laptop_is_alone() -> None:
    assert processes.find({}).alone
    assert processes.find({}).watchdog == 0
    assert processes.find({}, watchdog=7) == Processes(watchdog=7)


def test_flags_say_all() -> None:
    found = processes.find({}, "host:1234", 3, 0, heartbeat=5, join=9)
    assert found == Processes("host:1234", 3, 0, None, 5, processes.WATCHDOG_SECONDS, 9)
    assert not found.alone


def test_environment_variables_fill_in_and_flags_win() -> None:
    environ = {"JAX_COORDINATOR_ADDRESS": "a:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}
    found = processes.find(environ)
    assert (found.coordinator, found.num_processes, found.process_id) == ("a:1", 4, 3)
    assert processes.find(environ, process_id=1).process_id == 1
    assert processes.find(environ, coordinator="b:2").coordinator == "b:2"
    # With everything given, no launcher is asked.
    assert processes.find(environ | SLURM).launcher is None


def test_one_process_is_alone_wherever_it_runs() -> None:
    assert processes.find(SLURM, num_processes=1).alone
    assert processes.find(SLURM | {"SLURM_NTASKS": "1"}).alone
    assert processes.find({"SLURM_NTASKS": "4"}).alone  # in the batch script, outside of srun


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [
        (SLURM, "SLURM"),
        (OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:3"}, "Open MPI"),
        (KUBERNETES, "Kubernetes"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "Cloud TPU"),
        ({"TPU_WORKER_HOSTNAMES": "a"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "JAX_PLATFORMS": "cpu"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),  # a pod, of no indexed job
    ],
)
def test_launchers(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], launcher: str | None) -> None:
    with_package(monkeypatch, "kubernetes")
    assert processes.find(environ).launcher == launcher
    assert processes.find(environ).alone == (launcher is None)


def test_kubernetes_is_asked_only_through_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with_package(monkeypatch)
    assert processes.find(KUBERNETES).alone


def test_new_open_mpi_says_who_but_not_where() -> None:
    found = processes.find(OPEN_MPI, "host:1")
    assert (found.num_processes, found.process_id, found.launcher) == (2, 1, None)
    with pytest.raises(ConfigError, match="`--coordinator` is missing \\(or JAX_COORDINATOR_ADDRESS\\)"):
        processes.find(OPEN_MPI)


@pytest.mark.parametrize(
    ("environ", "given", "message"),
    [
        ({}, {"coordinator": "h:1"}, "`--num_processes` is missing (or JAX_NUM_PROCESSES)"),
        ({}, {"coordinator": "h:1", "num_processes": 2}, "`--process_id` is missing (or JAX_PROCESS_ID)"),
        ({}, {"num_processes": 2}, "`--coordinator` is missing"),
        ({}, {"coordinator": "h", "num_processes": 2, "process_id": 0}, "(='h') must be HOST:PORT"),
        ({}, {"coordinator": "h:99999", "num_processes": 2, "process_id": 0}, "must be HOST:PORT"),
        ({}, {"coordinator": "h:1", "num_processes": 2, "process_id": 2}, "`--num_processes` - 1 (=1)"),
        ({}, {"coordinator": "h:1", "num_processes": 0, "process_id": 0}, "must be at least 1"),
        ({"JAX_NUM_PROCESSES": "two"}, {}, "`JAX_NUM_PROCESSES` (='two') must be an integer"),
    ],
)
def test_refusals(environ: dict[str, str], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        processes.find(environ, **given)
    assert message in str(caught.value)
