"""Processes that find each other, or do not, and tell each other what only one knows."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import free_port

ROOT = Path(__file__).parents[3]

_PROCESS = """
import json, os, sys
from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.parallel import process_group, processes, sharding
from jaxrl.runs.folder import RunFolder

def job():
    with process_group.join(processes.find(os.environ, join=100)):
        import jax
        index = jax.process_index()
        texts = process_group.everywhere({"index": index, "text": "x" * 3000 * index})
        probe = sharding.Topology.of(jax.device_count())
        told = probe.gatherer()((index, 10 + index))
        seen = {
            "launcher": processes.find_launcher(os.environ),
            "texts": [(t["index"], len(t["text"])) for t in texts],
            "first": process_group.by_first(lambda: ["done by", index]),
            "told": sorted(map(list, {tuple(row) for row in told.tolist()})),
            "whole": sharding.to_host(probe.shard(lambda x: x, sharding.SHARDED, sharding.SHARDED)(
                probe.replicate(jax.numpy.arange(4)))).tolist(),
            "description": probe.description,
        }
        try:
            RunFolder(f"{sys.argv[1]}/{index}").create()  # each has a folder of its own
        except ConfigError as error:
            seen["folder"] = str(error)
        RunFolder(f"{sys.argv[1]}/shared").create()
        print("REPORT" + json.dumps(seen), flush=True)
        def fails():
            raise ConfigError("only the first knows")
        process_group.by_first(fails)

sys.exit(command_line.exit_code(job, debug=False))
"""


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_NUM", "SLURM_"))}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=own | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def slurm(index: int, port: int) -> dict[str, str]:
    names = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    return names | {
        "SLURM_PROCID": str(index),
        "SLURM_LOCALID": str(index),
        "JAX_COORDINATOR_PORT": str(port),
    }


@pytest.mark.slow
def test_processes_of_a_cluster_meet_and_fail_as_one(tmp_path: Path) -> None:
    port = free_port()
    started = [
        start(slurm(index, port) | {"JAX_NUM_CPU_DEVICES": "2"}, "-c", _PROCESS, str(tmp_path))
        for index in (0, 1)
    ]
    try:
        for process in started:
            out, err = process.communicate(timeout=120)
            (report,) = [json.loads(line[6:]) for line in out.splitlines() if line.startswith("REPORT")]
            folder, unseen = report.pop("folder"), f"process 1 on {socket.gethostname()} does not see"
            assert folder.startswith("`--workdir` (=")
            assert unseen in folder
            assert report == {
                "launcher": "SLURM",
                "texts": [[0, 0], [1, 3000]],
                "first": ["done by", 0],
                "told": [[0.0, 10.0], [1.0, 11.0]],
                "whole": [0, 1, 2, 3],
                "description": "4 x cpu in 2 processes",
            }
            assert "error: only the first knows\n" in err
            assert process.returncode == 2
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
def test_waiting_for_the_others_has_an_end() -> None:
    begun = time.monotonic()
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--coordinator={address}", "--num_processes=2", "--process_id=1", "--join=2"]
    alone = start({}, "-m", "jaxrl.main", "--config=tests/parallel/multi_process/tiny.py", *flags)
    try:
        out, err = alone.communicate(timeout=60)
    finally:
        alone.kill()
    assert (alone.returncode, out) == (75, "")
    said = f"the 2 processes did not meet at {address} within 2 s (--join); this is process 1"
    assert err == f"error: {said}\n"
    assert time.monotonic() - begun < 40


_FAILING = """
import os, sys, time
from jaxrl.commands import command_line
from jaxrl.parallel import process_group, processes

def job():
    with process_group.join(processes.find(os.environ)):
        for _ in range(3):
            process_group.everywhere("well")
        if not process_group.is_first():
            raise ZeroDivisionError("of the second alone")
        process_group.everywhere("waits for an answer that will not come")

sys.exit(command_line.exit_code(job, debug=False))
"""


@pytest.mark.slow
def test_an_error_of_one_ends_the_others_soon() -> None:
    port = free_port()
    names = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
    started = [start(names | {"JAX_PROCESS_ID": str(index)}, "-c", _FAILING) for index in (0, 1)]
    begun = time.monotonic()
    try:
        ends = [(process.communicate(timeout=60)[1], process.returncode) for process in started]
    finally:
        for process in started:
            process.kill()
    (first_said, first_code), (second_said, second_code) = ends
    assert "ZeroDivisionError: of the second alone" in second_said
    assert second_code == 1
    assert "error: another process of the run was lost: " in first_said
    assert first_code == 75
    assert time.monotonic() - begun < 40
