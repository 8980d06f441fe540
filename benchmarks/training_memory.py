"""The memory that `jaxrl preflight` expects of training on a CPU, beside what is resident while it trains.

  python benchmarks/training_memory.py ppo_large --config.env.num_envs=64 --config.network.core_size=256

Takes what `jaxrl train` takes: a config and its fields. Each value of `network.remat` is a process of its
own, which compiles an iteration for one device of this machine, reads the compiler's analysis of that program
as `jaxrl preflight` does, and runs it twice. Measured are the bytes that are resident at most while it runs,
less those that were before its arguments were made. docs/scaling.md has the results. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

_CHILD = "--child"


def main() -> None:
    arguments = sys.argv[1:]
    if _CHILD in arguments:
        print(json.dumps(measure([x for x in arguments if x != _CHILD])))
        return
    if not arguments or {"-h", "--help"} & set(arguments):
        raise SystemExit(__doc__)
    print("| remat | preflight | measured | ratio |\n|---|---|---|---|")
    for remat in ("off", "on"):
        field = f"--config.network.remat={'true' if remat == 'on' else 'false'}"
        command = [sys.executable, __file__, *arguments, field, _CHILD]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        expected, found = json.loads(done.stdout.splitlines()[-1])
        sizes = f"{expected / 2**20:,.0f} MiB | {found / 2**20:,.0f} MiB"
        print(f"| {remat} | {sizes} | {found / expected:.3f} |", flush=True)


def measure(arguments: list[str]) -> tuple[int, int]:
    """(bytes as compiled, bytes resident at most) of a training program of this process."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    from jaxrl.commands import run_arguments
    from jaxrl.config import resolve
    from jaxrl.diagnostics.memory_fit import ProgramMemory
    from jaxrl.parallel.sharding import Topology
    from jaxrl.programs.device_runtime import DeviceRuntime

    config = resolve(run_arguments.parse_training(["training_memory", *arguments]).config, 1)
    runtime = DeviceRuntime(config, Topology.of(1))
    runtime.compile()
    expected = ProgramMemory.of(runtime.compiled, exact=False).peak
    learning = runtime.learning
    jax.block_until_ready(learning.initial_state())  # compiles the program that makes it
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what compilation has freed is not there for the program
    before = _status("VmRSS")
    state, interval = learning.initial_state(), learning.empty_interval()
    jax.block_until_ready((state, interval))
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    for _ in range(2):
        state, _, failed = runtime.advance(state, interval, 1)
        jax.block_until_ready((state, failed))
    return expected, _status("VmHWM") - before


def _status(name: str) -> int:
    """Bytes of this process by the name of a row of its status."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
