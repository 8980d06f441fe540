"""About five seconds of compiling and training, a line of JSON per stage.

`jaxrl doctor` runs it in a process of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from jaxrl.metrics.writers import Writer

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
    rows = _Rows()
    summary = Trainer(config, writer=rows).fit()
    finite = bool(rows.losses) and all(map(math.isfinite, rows.losses))
    seconds = {name: summary[name] for name in ("steps_per_second", "compile_seconds")}
    print(json.dumps({"run": seconds | {"finite": finite}}), flush=True)


class _Rows(Writer):
    """Keeps the losses and shows nothing."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if "loss/policy" in scalars:
            self.losses += [scalars["loss/policy"], scalars["loss/value"]]


if __name__ == "__main__":
    main()
