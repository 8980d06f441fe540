"""The topologies that `--topology` can name: slices of TPUs, and GPUs of one host."""

from __future__ import annotations

from jaxrl.config.errors import ConfigError
from jaxrl.parallel import gpus, tpu_slices

# Devices of one kind by description, to compile for; they need not exist. Both have `devices()`, on which no
# program runs (ConfigError without their compiler), `memory_bytes` that programs may take on each,
# `enforces_memory`, True if the compiler refuses programs that need more, and its name as `compiler`.
DescribedDevices = tpu_slices.Slice | gpus.Gpus


def parse(text: str) -> DescribedDevices:
    """Parses `v5e:4x8`, `h200` or `h100:8`; ConfigError if there are no such devices."""
    name = text.strip().lower().partition(":")[0]
    if name in gpus.GPUS:
        return gpus.parse(text)
    if name in tpu_slices.CHIPS:
        return tpu_slices.parse(text)
    raise ConfigError(
        f"`--topology` (={text!r}) must be GENERATION:SHAPE of TPUs, such as v5e:4x8 "
        f"({', '.join(tpu_slices.CHIPS)}), or GPU or GPU:COUNT, such as h200 or h100:8 "
        f"({', '.join(gpus.GPUS)})"
    )
