"""Measures this trainer and its peers on the same host environments, in turn, each in a separate process.

  python benchmarks/host_peers.py --work=cartpole,pong,coinrun --repeats=5 --output=DIR

All step the same envpool batch. Writes DIR/hosts.json (every sample) and DIR/hosts.md (medians). Running the
command again with the same output continues. Peers are installed as for `benchmarks/peers.py`, with envpool.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import outcome
from envpool_work import WORKS
from peers import hardware
from roster import HERE, PEERS, python_of

_BESIDE = ("envpool==1.2.5", "PyQt5-Qt5==5.15.19")
# name: (virtual environment, runner, fields of the task, works it does)
RUNS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "jaxrl, overlap": ("", "jaxrl_host_runner.py", {"overlap": True, "fused": True}, tuple(WORKS)),
    "jaxrl, no overlap": ("", "jaxrl_host_runner.py", {"overlap": False, "fused": True}, tuple(WORKS)),
    "jaxrl, overlap, not fused": (
        "",
        "jaxrl_host_runner.py",
        {"overlap": True, "fused": False},
        ("cartpole",),  # images are not fused anyway
    ),
    "loop in CleanRL's style": ("sb3", "loop_runner.py", {}, tuple(WORKS)),
    "SB3 PPO / RecurrentPPO": ("sb3", "sb3_host_runner.py", {"peer": "sb3"}, tuple(WORKS)),
    "SBX PPO": ("sbx", "sb3_host_runner.py", {"peer": "sbx"}, ("cartpole",)),
}


def python_with_envpool(name: str, venvs: Path) -> str:
    """The Python of a peer, with envpool installed."""
    if not name:
        return sys.executable
    python = python_of(PEERS[name], venvs)
    if subprocess.run([python, "-c", "import envpool"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_BESIDE], check=True)
    return str(python)


def measure(name: str, work: str, repeat: int, venvs: Path, timeout: float) -> dict[str, Any]:
    """One sample, or why there is none."""
    venv, runner, fields, _ = RUNS[name]
    task = {"work": dataclasses.asdict(WORKS[work]), "seed": repeat, "peer": name} | fields
    command = [python_with_envpool(venv, venvs), str(HERE / runner), json.dumps(task)]
    env = os.environ | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    kept = {"run": name, "work": work, "repeat": repeat}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return kept | {"failure": f"stopped after {timeout:g} s"}
    found = outcome.read(done.stdout)
    return kept | (found or {"failure": (done.stderr or done.stdout)[-2000:]})


def markdown(record: dict[str, Any]) -> str:
    """The table: median steps per second with their range, and where our time went."""
    works = list(dict.fromkeys(sample["work"] for sample in record["samples"]))
    lines = [f"| | {' | '.join(works)} |", "|---" * (len(works) + 1) + "|"]
    for name in RUNS:
        lines.append(f"| {name} | {' | '.join(_cell(record, name, work) for work in works)} |")
    return "\n".join(lines) + "\n"


def _cell(record: dict[str, Any], name: str, work: str) -> str:
    samples = [s for s in record["samples"] if (s["run"], s["work"]) == (name, work) and "seconds" in s]
    if not samples:
        return "-"
    rates = sorted(s["steps"] / s["seconds"] for s in samples)
    cell = f"{statistics.median(rates):,.0f} [{rates[0]:,.0f}, {rates[-1]:,.0f}]"
    if "time/environments" in samples[0].get("shares", {}):
        share = statistics.median(s["shares"]["time/environments"] for s in samples)
        cell += f"; environments {100 * share:.0f}%"
    return cell


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--work", type=lambda text: text.split(","), default=list(WORKS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", required=True, help="folder for the JSON and the table")
    parser.add_argument("--venvs", default=cache / "jaxrl" / "peers", help="where virtual environments go")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one process may take")
    parser.add_argument("--count", type=int, default=10**6, help="measurements of this command at most")
    arguments = parser.parse_args()
    path = Path(arguments.output) / "hosts.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = {"command": shlex.join(sys.argv), "hardware": hardware(), "samples": []}
    record = json.loads(path.read_text()) if path.exists() else fresh
    known = {(s["run"], s["work"], s["repeat"]) for s in record["samples"]}
    todo = [
        (name, work, repeat)
        for repeat in range(arguments.repeats)
        for work in arguments.work
        for name in RUNS
        if work in RUNS[name][3] and (name, work, repeat) not in known
    ]
    for name, work, repeat in todo[: arguments.count]:
        sample = measure(name, work, repeat, Path(arguments.venvs), arguments.timeout)
        rate = (
            f"{sample['steps'] / sample['seconds']:,.0f} steps/s"
            if "seconds" in sample
            else sample["failure"]
        )
        print(f"{work}, {name}, {repeat + 1} of {arguments.repeats}: {rate}", flush=True)
        record["samples"].append(sample)
        path.write_text(json.dumps(record, indent=1) + "\n")
        path.with_suffix(".md").write_text(markdown(record))


if __name__ == "__main__":
    main()
