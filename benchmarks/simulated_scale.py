"""Where scaling ends: three sizes of networks on up to 256 chips of v5e and 64 H200, by preflight's model.

  python benchmarks/simulated_scale.py compile --output=runs/scale --kind=v5e   needs libtpu, but no TPU
  python benchmarks/simulated_scale.py compile --output=runs/scale --kind=h200  needs cuda12, but no GPU
  python benchmarks/simulated_scale.py table --output=runs/scale --picture=docs/img/scale.png
  python benchmarks/simulated_scale.py links      all-reduces between two devices and two processes, measured

`compile` reads the programs of one device, with many environments and with few, and keeps those that it has
read. The time of an iteration is a line through the two; exchanges are added by a formula. docs/scaling.md
has the results, the formula and its assumptions.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import scaling

TOTAL = 4096  # environments of strong scaling, and of each device of weak scaling
# Fields beside those of configs/ppo_large.py.
SIZES: dict[str, dict[str, Any]] = {
    "64 K": {"network.core_size": 80, "network.hidden_sizes": (80, 80), "ppo.gradient_accumulation": 1},
    "1 M": {"network.core_size": 336, "network.hidden_sizes": (336, 336), "ppo.gradient_accumulation": 1},
    "15 M": {},
}
SHAPES = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
# Environments of one device whose programs are compiled: most, fewest, and one between them as a check.
COMPILED = {"v5e": (4096, 16, 512), "h200": (4096, 64, 512)}
DEVICES = {"v5e": tuple(SHAPES), "h200": (1, 2, 4, 8, 16, 32, 64)}
# Assumptions about GPUs, none measured here; those about TPUs are in scaling.py.
HOST = 8  # GPUs of a host
GPU_START, HOST_HOP = 10e-6, 5e-6  # seconds to begin, and from host to host
NVLINK, NETWORK = 450e9, 50e9  # bytes per second of a GPU in one direction, within a host and between hosts
UPDATES, OTHERS = 4, 6  # minibatches of an iteration; exchanges of sums before and after them
SHARDED_FROM = 1_000_000  # parameters
HALF = 0.5


@dataclass(frozen=True)
class Iteration:
    """Seconds of an iteration: what does not depend on the environments, what does, and exchanges."""

    fixed: float
    variable: float
    start: float
    links: float

    @property
    def total(self) -> float:
        return self.fixed + self.variable + self.start + self.links

    @property
    def holds(self) -> str:
        """What more devices do not make shorter, the longest first."""
        parts = {"steps": self.fixed, "beginning exchanges": self.start, "bytes of exchanges": self.links}
        return max(parts, key=lambda name: parts[name])


def exchanges(parameters: int, updates: int, sharded: bool) -> tuple[int, int]:
    """(exchanges of an iteration, bytes of vectors as `Work.exchanged_bytes` counts them)."""
    if not sharded:
        return updates + OTHERS, 4 * parameters * updates
    # A reduce-scatter, an all-gather and the all-reduce of sums of each minibatch, and the last gradient.
    return 3 * updates + 1 + OTHERS, 4 * parameters * updates + 2 * parameters


def exchange_seconds(kind: str, devices: int, times: int, size: int) -> tuple[float, float]:
    """Seconds of exchanges among devices: (beginning them, moving bytes)."""
    if devices == 1:
        return 0.0, 0.0
    if kind == "v5e":
        shape = tuple(int(n) for n in SHAPES[devices].split("x"))
        start = scaling.exchange_seconds(shape, times, 0)
        return start, scaling.exchange_seconds(shape, times, size) - start
    hosts, within = max(1, devices // HOST), min(devices, HOST)
    links = 2 * size * (within - 1) / within / NVLINK
    # Each GPU exchanges its part with the same GPU of the other hosts.
    links += 2 * size / within * (hosts - 1) / hosts / NETWORK
    return times * (GPU_START + 2 * (hosts - 1) * HOST_HOP), links


def line(points: dict[int, float]) -> tuple[float, float]:
    """(seconds, seconds per environment) of the line through the most and the fewest environments."""
    few, many = min(points), max(points)
    slope = (points[many] - points[few]) / (many - few)
    return points[few] - few * slope, slope


def iteration(kind: str, record: dict[str, Any], devices: int, environments: int) -> Iteration:
    """The time on that many devices with so many environments each."""
    fixed, slope = line({int(n): x for n, x in record["seconds"].items()})
    count = record["parameters"]
    start, links = exchange_seconds(kind, devices, *exchanges(count, UPDATES, count >= SHARDED_FROM))
    return Iteration(fixed, slope * environments, start, links)


def efficiencies(kind: str, record: dict[str, Any], strong: bool) -> dict[int, float]:
    """Steps per second and device by the number of devices, relative to one device alone."""
    one = iteration(kind, record, 1, TOTAL).total
    found = {}
    for n in DEVICES[kind]:
        each = TOTAL // n if strong else TOTAL
        found[n] = (each / iteration(kind, record, n, each).total) / (TOTAL / one)
    return found


def end_of(kind: str, record: dict[str, Any]) -> tuple[int, str]:
    """(the most devices that are used by half or more in strong scaling, what holds the next number up)."""
    found = efficiencies(kind, record, strong=True)
    last = max(n for n, share in found.items() if share >= HALF)
    after = [n for n in DEVICES[kind] if n > last]
    return last, iteration(kind, record, after[0], TOTAL // after[0]).holds if after else "-"


def _config(size: str, environments: int) -> Any:
    from jaxrl.config.files import load_config

    config = load_config("ppo_large")
    config.env.num_envs = environments
    config.update_from_flattened_dict(SIZES[size])
    return config


def _examine(name: str, size: str, environments: int) -> tuple[Any, int, float]:
    """(report, parameters, seconds by the model without exchanges) of a program for described devices."""
    import jax

    from jaxrl.diagnostics import memory_fit
    from jaxrl.diagnostics.launches import IterationTime
    from jaxrl.parallel import topologies
    from jaxrl.parallel.gpus import Gpus
    from jaxrl.programs.device_runtime import DeviceRuntime

    described = topologies.parse(name)
    topology, limit, _ = memory_fit.target(_config(size, environments), described)
    config, _ = memory_fit.share_evenly(_config(size, environments), topology.mesh.size)
    report = memory_fit.examine(config, topology, limit, described.enforces_memory, evaluation=False)
    if report.work is None:
        raise SystemExit(f"{name}, {size}, {environments} environments: {report.complaint}")
    state = DeviceRuntime(config, topology).learning.abstract_state()
    count = sum(math.prod(x.shape) for x in jax.tree.leaves(state.learner.policy.params))
    if isinstance(described, Gpus):
        gpu, found = described.gpu, report.launches
        time_of = IterationTime.of(
            found.kernels, found.bytes, report.flops, gpu.bandwidth, gpu.bfloat16_flops
        )
        return report, count, time_of.most
    return report, count, report.work.cycles / described.chip.clock


def _read(folder: Path, kind: str) -> dict[str, Any]:
    path = folder / f"{kind}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def compile_programs(kind: str, folder: Path) -> None:
    path, found = folder / f"{kind}.json", _read(folder, kind)
    for size in SIZES:
        record = found.setdefault(size, {"seconds": {}, "memory": {}})
        for n in COMPILED[kind][: 3 if size == "1 M" else 2]:
            if str(n) in record["seconds"] or (record.get("between") or [None])[0] == n:
                continue
            name = "v5e:1x1" if kind == "v5e" else kind
            report, record["parameters"], seconds = _examine(name, size, n)
            if n == COMPILED[kind][2]:
                record["between"] = [n, seconds]
            else:
                record["seconds"][str(n)] = seconds
            record["memory"][str(n)] = report.needed
            path.write_text(json.dumps(found, indent=2) + "\n")
            print(kind, size, n, f"{1e3 * seconds:.3g} ms", flush=True)


def table(folder: Path, picture: str) -> None:
    found = {
        kind: {size: record for size in SIZES if len((record := read.get(size, {})).get("seconds", {})) == 2}
        for kind in DEVICES
        if (read := _read(folder, kind))
    }
    for kind, sizes in found.items():
        for size, record in sizes.items():
            last, holds = end_of(kind, record)
            one = iteration(kind, record, 1, TOTAL)
            most = iteration(kind, record, DEVICES[kind][-1], TOTAL // DEVICES[kind][-1])
            weak = efficiencies(kind, record, strong=False)[DEVICES[kind][-1]]
            print(
                f"| {kind} | {size} | {1e3 * one.total:.3g} | {1e3 * one.fixed:.3g} | {1e3 * most.total:.3g} "
                f"| {1e3 * most.start:.2g} | {1e3 * most.links:.2g} | {last} | {holds} | {weak:.2f} |"
            )
            if between := record.get("between"):
                said = iteration(kind, record, 1, between[0]).total
                print(f"  the line at {between[0]} environments: {said / between[1] - 1:+.1%}")
    if picture:
        draw(found, picture)


def draw(found: dict[str, Any], picture: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = {"v5e": "TPU v5e", "h200": "H200, eight in a host"}
    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 2.8), sharey=True, squeeze=False)
    for ax, (kind, sizes) in zip(axes.flat, found.items(), strict=True):
        for color, (size, record) in zip(("#8d99ae", "#d1495b", "#444444"), sizes.items(), strict=True):
            for strong, style in ((True, "-"), (False, "--")):
                points = efficiencies(kind, record, strong)
                label = f"{size}, {'strong' if strong else 'weak'}"
                ax.plot(list(points), list(points.values()), style, color=color, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(DEVICES[kind], [str(n) for n in DEVICES[kind]])
        ax.set_ylim(0, 1.05)
        ax.set_title(titles[kind], fontsize=10)
        ax.set_xlabel("devices", fontsize=8)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("speed of a device, of one alone", fontsize=8)
    axes[0, 0].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(picture, dpi=90)


def links(size: int) -> None:
    """Prints the seconds of an all-reduce between two virtual devices, and between two processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for processes in (1, 2):
        command = [sys.executable, __file__, "link", f"--size={size}", f"--processes={processes}"]
        env = os.environ | {"JAX_PLATFORMS": "cpu"}
        started = [
            subprocess.Popen([*command, f"--port={port}", f"--rank={rank}"], env=env)
            for rank in range(processes)
        ]
        if sum(process.wait() for process in started):
            raise SystemExit("an all-reduce failed")


def link(size: int, processes: int, port: int, rank: int) -> None:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_num_cpu_devices", 2 // processes)
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, rank)
    from jaxrl.parallel.sharding import REPLICATED, Topology

    topology, count = Topology.of(2), 100

    def turn(_: Any, x: jax.Array) -> jax.Array:
        return topology.axis.psum(x) * 0.5

    run = topology.shard(lambda x: jax.lax.fori_loop(0, count, turn, x), REPLICATED, REPLICATED)
    x = topology.replicate(jnp.ones(size // 4))
    jax.block_until_ready(run(x))
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        jax.block_until_ready(run(x))
        best = min(best, (time.perf_counter() - began) / count)
    if rank == 0:
        print(f"{processes} processes: {1e6 * best:.0f} us for {size:,} bytes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=("compile", "table", "links", "link"))
    parser.add_argument("--output", type=Path, default=Path("runs/scale"))
    parser.add_argument("--kind", choices=tuple(DEVICES), default="v5e")
    parser.add_argument("--picture", default="", help="file to draw into")
    parser.add_argument("--size", type=int, default=133_668, help="bytes of an all-reduce that is measured")
    for name in ("processes", "port", "rank"):
        parser.add_argument(f"--{name}", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if given.job == "compile":
        compile_programs(given.kind, given.output)
    elif given.job == "table":
        table(given.output, given.picture)
    elif given.job == "links":
        links(given.size)
    else:
        link(given.size, given.processes, given.port, given.rank)


if __name__ == "__main__":
    main()
