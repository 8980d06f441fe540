"""From the metrics that a program sums up on the devices to the rows that are logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_EPISODE_MEANS = ("episode/return", "episode/length")
_COUNTS = ("episode/count", "ppo/skipped")


def averages(sums: Mapping[str, Any], skips: bool) -> dict[str, float]:
    """What is logged of an interval.

    Args:
      sums: scalars summed over the interval's iterations, and how many these are.
      skips: whether updates may be dropped, so that it is worth saying how many were.

    Returns:
      Averages over the iterations; `ppo/updates` as it is, episodes and dropped updates counted, and means
      over the episodes where any ended.
    """
    iterations, count = float(sums["iterations"]), float(sums["episode/count"])
    row = {}
    for name, x in sums.items():
        if name in _EPISODE_MEANS:
            if count:
                row[name] = float(x) / count
        elif name in _COUNTS or name == "ppo/updates":
            row[name] = float(x)
        elif name != "iterations":
            row[name] = float(x) / iterations
    if not skips:
        del row["ppo/skipped"]
    return row


def to_json(sums: Mapping[str, Any]) -> dict[str, float]:
    """Sums of an unfinished interval, for a checkpoint; float32 survives the way through JSON exactly."""
    return {name: x.item() for name, x in sums.items()}


def from_json(stored: Mapping[str, float], empty: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Inverse of `to_json`; `empty` says names and dtypes. A metric that is not stored starts at 0."""
    return {name: np.asarray(stored.get(name, 0), x.dtype) for name, x in empty.items()}
