"""The topologies that `--topology` can name: slices of TPUs, and GPUs of one host."""

from __future__ import annotations

from jaxrl.config.errors import ConfigError
from jaxrl.parallel import gpus, tpu_slices
from jaxrl.parallel.described_devices import DescribedDevices


def parse(text: str) -> DescribedDevices:
    """Parses `v5e:4x8`, `h200` or `h100:8`.

    Raises:
      ConfigError: there are no such devices.
    """
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
