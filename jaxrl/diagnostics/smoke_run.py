"""Some seconds of compiling and training, reported as a line of JSON per stage.

`jaxrl doctor` runs this in a child process: a failing XLA ends its process.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from jaxrl.reporting.writers import Writer

STEPS = 50_000


def in_child(seconds: float) -> tuple[dict[str, Any], str, str]:
    """Runs `main` in another process for some seconds: reports by stage, stderr, its end in words."""
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        said = done.stdout
        errors = done.stderr
        ended = f"ended with {done.returncode}"
    except subprocess.TimeoutExpired as error:
        said = _text(error.stdout)
        errors = _text(error.stderr)
        ended = f"did not end within {seconds:g} s"
    stages: dict[str, Any] = {}
    for line in said.splitlines():
        if line.startswith("{"):
            stages |= json.loads(line)
    return stages, errors, ended


def _text(stream: bytes | str | None) -> str:
    return stream.decode(errors="replace") if isinstance(stream, bytes) else stream or ""


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
