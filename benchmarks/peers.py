"""Measures this trainer and its peers on the same work, in turn, each measurement in a separate process.

  python benchmarks/peers.py --work=cartpole-mlp --envs=64,1024 --repeats=5 --output=DIR
  python benchmarks/peers.py --work=solve-cartpole --output=DIR --peers=jaxrl,rejax,sb3
  python benchmarks/peers.py --work=cartpole-mlp --envs=64 --members=1,2,4,8,16 --output=DIR --purejaxrl=PATH
  python benchmarks/peers.py --work=pqn-breakout-cnn --envs=128 --output=DIR --purejaxql=PATH

Writes DIR/WORK.json (every sample, versions, hardware, command) and DIR/WORK.md (medians, ratios, the floor).
Peers from PyPI each get a virtual environment on first use. benchmarks/README.md describes the comparison.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import itertools
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import outcome
import tables
from roster import HERE, PEERS, Peer, python_of
from works import EVALUATE_EVERY, SOLVE, SOLVED_RETURN, WORKS

ROOT = Path(__file__).resolve().parents[1]
_FLOOR = Peer("floor", "floor.py", {}, "")
# What tells the measurements of one command apart, besides their repeats.
_CASE = ("peer", "num_envs", "members")


class Session:
    """One command: its samples, written out after every measurement."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.folder = Path(arguments.output)
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {name: getattr(arguments, name, None) for name in PEERS}
        self.paths = {name: str(Path(path).resolve()) for name, path in given.items() if path}
        self.peers = _choose(arguments, self.paths)
        self.pythons = {peer.name: python_of(peer, Path(arguments.venvs)) for peer in self.peers}
        self.pythons["floor"] = Path(sys.executable)
        self.record: dict[str, Any] = {
            "work": arguments.work,
            "command": shlex.join(["python", "benchmarks/peers.py", *sys.argv[1:]]),
            "date": datetime.date.today().isoformat(),
            "hardware": hardware(),
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "samples": [],
            "failures": [],
        }

    def run(self) -> None:
        jobs = self._solves() if self.arguments.work == SOLVE else self._measurements()
        for peer, task, environment in jobs:
            if any(all(failure[key] == task[key] for key in _CASE) for failure in self.record["failures"]):
                continue
            started = time.monotonic()
            self._take(peer, task, environment)
            print(f"  {time.monotonic() - started:.0f} s", flush=True)
            self._write()

    def _measurements(self) -> Iterator[tuple[Peer, dict[str, Any], dict[str, str]]]:
        arguments = self.arguments
        work = WORKS[arguments.work]
        job, peers = ("population", self.peers) if arguments.members else ("measure", self.peers)
        if work.has_floor and not arguments.members and not arguments.no_floor:
            peers = [*peers, _FLOOR]
        cases = itertools.product(range(arguments.repeats), arguments.envs, arguments.members or [0], peers)
        for repeat, num_envs, members, peer in cases:
            steps = int((arguments.steps or work.steps) * peer.share) // max(1, members)
            task = self._task(peer, job, repeat, num_envs=num_envs, members=members, steps=steps)
            cached = "JAX_COMPILATION_CACHE_DIR" in os.environ
            yield peer, task, {} if cached else {"JAX_ENABLE_COMPILATION_CACHE": "false"}

    def _solves(self) -> Iterator[tuple[Peer, dict[str, Any], dict[str, str]]]:
        for repeat in range(self.arguments.repeats):
            for peer in self.peers:
                with tempfile.TemporaryDirectory() as cache:
                    environment = {
                        "JAX_COMPILATION_CACHE_DIR": cache,
                        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
                    }
                    for state in ("cold", "warm"):
                        task = self._task(peer, "solve", repeat, num_envs=0, members=0, cache=state)
                        yield peer, task, environment

    def _task(self, peer: Peer, job: str, repeat: int, **fields: Any) -> dict[str, Any]:
        work = WORKS.get(self.arguments.work, WORKS["cartpole-mlp"])
        return fields | {
            "job": job,
            "peer": peer.name,
            "repeat": repeat,
            "seed": repeat,
            "work": dataclasses.asdict(work),
            "rollout_length": work.rollout_length,
            "epochs": work.epochs,
            "target": SOLVED_RETURN,
            "evaluate_every": EVALUATE_EVERY,
            "path": self.paths.get(peer.name),
        }

    def _take(self, peer: Peer, task: dict[str, Any], environment: dict[str, str]) -> None:
        """Runs one process and keeps its sample, or why there is none."""
        where = task.get("cache") or f"{task['num_envs']} environments"
        where += f" x {task['members']}" if task["members"] else ""
        print(f"{peer.name}, {where}, {task['repeat'] + 1} of {self.arguments.repeats}", end=":", flush=True)
        everywhere = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        kept = {key: task[key] for key in (*_CASE, "repeat", "seed", "cache") if key in task}
        with tempfile.TemporaryDirectory() as workdir:
            started = time.monotonic()
            process = subprocess.Popen(
                self._command(peer, task, workdir),
                cwd=ROOT,
                env=os.environ | everywhere | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                output, _ = process.communicate(timeout=self.arguments.timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                self._fail(kept, f"stopped after {self.arguments.timeout:g} s", output)
                return
            wall = time.monotonic() - started
            found = _summary(workdir) if _is_our_solve(task) else outcome.read(output)
        if process.returncode or found is None:
            self._fail(kept, _last_line(output) or f"exit code {process.returncode}", output)
            return
        self.record["samples"].append(kept | {"wall_seconds": wall} | found)
        said = f"{found['steps'] / found['seconds']:,.0f} steps/s" if "seconds" in found else f"{wall:.1f} s"
        print(f" {said}", end=",", flush=True)

    def _fail(self, kept: dict[str, Any], reason: str, output: str) -> None:
        print(f" failed: {reason}", end=",", flush=True)
        self.record["failures"].append(kept | {"reason": reason, "output": output[-10_000:]})

    def _command(self, peer: Peer, task: dict[str, Any], workdir: str) -> list[str]:
        python = str(self.pythons[peer.name])
        if not _is_our_solve(task):
            return [python, str(HERE / peer.runner), json.dumps(task)]
        return [
            *(python, "-m", "jaxrl.main", "--config=configs/ppo_mlp.py", f"--workdir={workdir}"),
            f"--config.stop.return={task['target']}",
            "--config.evaluate.modes=greedy",  # as the others are judged
            f"--config.evaluate.every_steps={task['evaluate_every']}",
            f"--config.seed={task['seed']}",
        ]

    def _write(self) -> None:
        path = self.folder / self.arguments.work
        path.with_suffix(".json").write_text(json.dumps(self.record, indent=1) + "\n")
        if self.record["samples"]:
            path.with_suffix(".md").write_text(tables.markdown(self.record))


def _choose(arguments: argparse.Namespace, paths: dict[str, str]) -> list[Peer]:
    """The peers of this work: those asked for, or all whose checkout, if they need one, was given."""
    solving = arguments.work == SOLVE
    able = [peer for peer in PEERS.values() if (peer.solve if solving else arguments.work in peer.notes)]
    if arguments.members:
        able = [peer for peer in able if peer.trains_populations]
    asked = arguments.peers
    for name in asked or ():
        if name not in [peer.name for peer in able]:
            sys.exit(
                f"error: --peers: {name!r} does not do {arguments.work}; {[peer.name for peer in able]} do"
            )
        if PEERS[name].checkout and name not in paths:
            sys.exit(f"error: --peers: {name} is on no package index; give --{name}=PATH, a checkout of it")
    for name, path in paths.items():
        if not Path(path).is_dir():
            sys.exit(f"error: --{name}={path} is no folder")
    if asked:
        return [peer for peer in able if peer.name in asked]
    return [peer for peer in able if not peer.checkout or peer.name in paths]


def _is_our_solve(task: dict[str, Any]) -> bool:
    """Solving is what our own command does; everything else has a runner."""
    return task["peer"] == "jaxrl" and task["job"] == "solve"


def _summary(workdir: str) -> dict[str, Any] | None:
    path = Path(workdir) / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text())
    return {key: summary[key] for key in ("steps", "compile_seconds", "eval_return", "versions")}


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def hardware() -> dict[str, Any]:
    """The facts on which the numbers depend."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.processor(),
        "cores": cores,
        "memory_gib": round(memory),
        "os": platform.platform(),
        "load": ", ".join(f"{x:.1f}" for x in os.getloadavg()),
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    numbers = lambda text: [int(x) for x in text.split(",")]  # noqa: E731
    parser.add_argument("--work", choices=[*WORKS, SOLVE], required=True)
    parser.add_argument("--envs", type=numbers, default=[64, 1024], help="numbers of environments: 64,1024")
    parser.add_argument("--members", type=numbers, help="seeds trained by one program, each with --envs")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each; the median counts")
    parser.add_argument("--output", required=True, help="folder for the JSON and the table")
    parser.add_argument("--peers", type=lambda text: text.split(","), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--steps", type=int, help="environment steps measured; slow peers take a share of it")
    parser.add_argument("--venvs", default=cache / "jaxrl" / "peers", help="where virtual environments go")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds that one process may take")
    parser.add_argument("--no-floor", action="store_true", help="without the limits of the machine")
    parser.add_argument("--purejaxrl", metavar="PATH", help="a checkout of PureJaxRL")
    parser.add_argument("--purejaxql", metavar="PATH", help="a checkout of purejaxql")
    parser.add_argument("--jaxmarl", metavar="PATH", help="a checkout of JaxMARL")
    return parser.parse_args()


if __name__ == "__main__":
    Session(_parse()).run()
