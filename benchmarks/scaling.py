"""Scaling of training over devices: measured here, and predicted for TPU slices from compiled programs.

  python benchmarks/scaling.py --measured --output=runs/scaling   virtual CPU devices and processes
  python benchmarks/scaling.py --compiled --output=runs/scaling   v5e slices up to 256 cores; needs libtpu

  --config=FILE      what to train (default: configs/ppo.py); --config.FIELD=VALUE as for `jaxrl train`
  --per-device=N     environments of each device for weak scaling (default: 64)
  --total=N          environments in total for strong scaling (default: 2048)
  --seconds=S        of each measurement (default: 8)

Weak scaling keeps the work per device constant, strong scaling the total work. `docs/scaling.md` has results
and the arithmetic of the prediction.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SLICES = ("2x4", "4x8", "16x16")
# Assumptions of the prediction, none measured here; docs/scaling.md says where they come from.
START_SECONDS = 2e-6  # until an all-reduce has begun on all cores
HOP_SECONDS = 1e-6  # from a chip to its neighbour
LINK_BYTES = 200e9  # per second and chip, in one direction


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--config", default="configs/ppo.py")
    parser.add_argument("--per-device", type=int, default=64)
    parser.add_argument("--total", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--output", type=Path, required=True)
    options, overrides = parser.parse_known_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.measured:
        _write(options.output, "measured", measured(options, overrides))
    if options.compiled:
        _write(options.output, "compiled", compiled(options, overrides))


def compiled(options: argparse.Namespace, overrides: list[str]) -> list[dict[str, Any]]:
    """A row for each slice and kind of scaling."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    from jaxrl.commands import run_arguments
    from jaxrl.diagnostics import memory_fit
    from jaxrl.parallel import tpu_slices
    from jaxrl.parallel.sharding import Topology

    config = run_arguments.parse_training(["scaling", f"--config={options.config}", *overrides]).config
    rows = []
    for scaling in ("weak", "strong"):
        for shape in SLICES:
            described = tpu_slices.parse(f"v5e:{shape}")
            cores = described.device_count
            config.env.num_envs = options.per_device * cores if scaling == "weak" else options.total
            resolved, _ = memory_fit.share_evenly(config, cores)
            topology = Topology.on(described.devices())
            report = memory_fit.examine(
                resolved, topology, described.chip.memory_bytes, True, evaluation=False
            )
            assert report.work is not None
            work, compute = report.work, report.work.cycles / described.chip.clock
            exchange = exchange_seconds(described.shape, work.exchanges, work.exchanged_bytes)
            rows.append(
                {
                    "scaling": scaling,
                    "slice": described.name,
                    "cores": cores,
                    "environments": resolved.env.num_envs,
                    "all-reduces": work.exchanges,
                    "bytes": work.exchanged_bytes,
                    "compute ms": 1e3 * compute,
                    "exchange ms": 1e3 * exchange,
                    "share of exchange": exchange / (compute + exchange),
                    "steps per second": resolved.steps_per_iteration / (compute + exchange),
                    "memory": report.needed,
                }
            )
    return _with_efficiency(rows, "cores")


def exchange_seconds(shape: tuple[int, ...], times: int, size: int) -> float:
    """Seconds of `times` all-reduces of `size` bytes in all, on chips in a plane.

    A sum goes along each direction and back: 2 (n - 1) hops, on rings (16 chips in a row of v5e) n. Of a
    byte, each chip sends 2 (chips - 1) / chips over its links.
    """
    hops = sum(n if n == 16 else 2 * (n - 1) for n in shape)
    chips = math.prod(shape)
    return times * (START_SECONDS + hops * HOP_SECONDS) + 2 * size * (chips - 1) / chips / LINK_BYTES


def measured(options: argparse.Namespace, overrides: list[str]) -> list[dict[str, Any]]:
    """A row for each number of virtual devices, and of processes with one device each."""
    rows = []
    for scaling in ("weak", "strong"):
        for by, measure in (("devices", _with_devices), ("processes", _with_processes)):
            for count in (1, 2):
                total = options.per_device * count if scaling == "weak" else options.total
                rate = measure(options, overrides, count, total)
                rows.append(
                    {
                        "scaling": scaling,
                        "by": by,
                        "count": count,
                        "environments": total,
                        "steps per second": rate,
                    }
                )
                print(rows[-1], flush=True)
    return _with_efficiency(rows, "count")


def _with_efficiency(rows: list[dict[str, Any]], count: str) -> list[dict[str, Any]]:
    """Adds steps per second and device over those of the first row of the same series."""
    for row in rows:
        same = [r for r in rows if (r["scaling"], r.get("by")) == (row["scaling"], row.get("by"))]
        first = same[0]["steps per second"] / same[0][count]
        row["efficiency"] = row["steps per second"] / row[count] / first
    return rows


def _with_devices(options: argparse.Namespace, overrides: list[str], count: int, total: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        job = ["jaxrl", "benchmark", f"--seconds={options.seconds}", f"--workdir={folder}"]
        _run(
            [
                sys.executable,
                "-m",
                *job,
                *_training(options, overrides, total),
                f"--config.num_devices={count}",
            ]
        )
        return float(json.loads((Path(folder) / "throughput.json").read_text())["steps_per_second"])


def _with_processes(options: argparse.Namespace, overrides: list[str], count: int, total: int) -> float:
    """Steps per second in the summary of a run whose length follows from a first, short one."""
    rate, steps = 0.0, 1
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            changes = {"stop.steps": steps, "stop.return": "none", "log.writers": "jsonl"}
            changes |= {
                "evaluate.every_steps": 0,
                "checkpoint.every_steps": 0,
                "log.every_steps": max(1, steps // 4),
            }
            fields = [f"--config.{name}={value}" for name, value in changes.items()]
            pod = [str(ROOT / "launch/local_pod.sh"), str(count), f"--logs={folder}/logs"]
            _run([*pod, *_training(options, overrides, total), *fields, f"--workdir={folder}/run"])
            rate = float(json.loads((Path(folder) / "run/summary.json").read_text())["steps_per_second"])
            steps = max(steps, int(rate * options.seconds))
    return rate


def _training(options: argparse.Namespace, overrides: list[str], total: int) -> list[str]:
    return [f"--config={options.config}", *overrides, f"--config.env.num_envs={total}"]


def _run(command: list[str]) -> None:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def _write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    show = lambda x: f"{x:,}" if isinstance(x, int) else f"{x:,.3g}" if isinstance(x, float) else str(x)  # noqa: E731
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([show(row[h]) for h in heads] for row in rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    (folder / f"{name}.md").write_text(table + "\n")
    print(table)


if __name__ == "__main__":
    main()
