"""About five seconds of compiling and training, reported as a line of JSON per stage.

`jaxrl doctor` runs this in a separate process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from jaxrl.reporting.writers import Writer

STEPS = 50_000


def main() -> None:
    """Prints `{"devices": ...}` and `{"run": ...}`."""
    import jax

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
    config.network.hidden_sizes, config.network.core_size = (16,), 16
    config[config.algorithm].rollout_length = 32
    config.stop.steps, config.log.every_steps = STEPS, STEPS // 10
    config.evaluate.every_steps, config.evaluate.episodes = 0, 1
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


if __name__ == "__main__":
    main()
