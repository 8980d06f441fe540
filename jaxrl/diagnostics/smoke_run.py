"""Some seconds of compiling and training, reported as a line of JSON per stage.

`jaxrl doctor` runs this in a child process: a failing XLA ends its process.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from jaxrl.config import installation
from jaxrl.reporting.writers import Writer

STEPS = 50_000


def in_child(seconds: float) -> tuple[dict[str, Any], str, str]:
    """Runs `main` in another process for some seconds: reports by stage, what went wrong, advice on it."""
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
        printed, complaints, ended = done.stdout, done.stderr, f"ended with {done.returncode}"
    except subprocess.TimeoutExpired as error:
        printed, complaints = error.stdout or b"", error.stderr or b""
        ended = f"did not end within {seconds:g} s"
    stages: dict[str, Any] = {}
    for line in printed.decode(errors="replace").splitlines():
        if line.startswith("{"):
            stages |= json.loads(line)
    errors = complaints.decode(errors="replace")
    return stages, f"{ended}: {_error_line(errors)}", _advice(errors)


def _advice(errors: str) -> str:
    if "Unknown flag" in errors:
        return "remove the flag from XLA_FLAGS: this version of XLA does not know it"
    if "RESOURCE_EXHAUSTED" in errors or "out of memory" in errors.lower():
        return "another process holds the device's memory: `nvidia-smi` names it"
    if os.environ.get("JAX_PLATFORMS", "cpu") != "cpu" or "Unable to initialize backend" in errors:
        return f"unset JAX_PLATFORMS, or install what it names, such as {installation.command('cuda12')}"
    return "see the message; `python -c 'import jax; jax.devices()'` shows all of it"


def _error_line(errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    named = [line for line in lines if "Unknown flag" in line or "Error" in line]
    return (named or lines or ["without a word"])[-1][:300]


def main() -> None:
    """Prints `{"devices": ...}` and `{"run": ...}`."""
    import jax

    from jaxrl.parallel import compilation, cpu_devices

    # As training does: the devices that it may use, and the cache that it fills.
    cpu_devices.offer_cpu_devices(cpu_devices.available_cores())
    compilation.use_compilation_cache()
    first = jax.devices()[0]
    devices = {
        "count": jax.device_count(),
        "kind": first.device_kind,
        "platform": first.platform,
        "bytes": (first.memory_stats() or {}).get("bytes_limit"),
    }
    print(json.dumps({"devices": devices}), flush=True)

    from jaxrl.config import default_config
    from jaxrl.training.trainer import Trainer

    config = default_config()
    # A few plain operations: compiling them takes most of the time.
    config.env.name = "jaxrl:ProbePolicy"
    config.network.core = "none"
    config.network.hidden_sizes = (16,)
    config.normalize.observations = False
    config.log.layers = False
    settings = config[config.algorithm]
    settings.rollout_length = 32
    settings.num_epochs = 1
    settings.num_minibatches = 1
    config.stop.steps = STEPS
    config.log.every_steps = STEPS // 10
    config.evaluate.every_steps = 0
    config.evaluate.episodes = 1
    writer = _Losses()
    summary = Trainer(config, writer=writer).fit()
    finite = bool(writer.losses) and all(map(math.isfinite, writer.losses))
    seconds = {name: summary[name] for name in ("steps_per_second", "compile_seconds")}
    print(json.dumps({"run": seconds | {"finite": finite}}), flush=True)


class _Losses(Writer):
    """Keeps the losses and shows nothing."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.losses += [x for name, x in scalars.items() if name.startswith("loss/")]
