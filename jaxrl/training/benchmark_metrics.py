"""benchmark_metrics.json of a run with a budget in seconds: its steps, speed, memory and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.metrics import resources


def benchmark_metrics(
    summary: Mapping[str, Any], seconds: float, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The content of the file.

    Args:
      summary: of the run, or the short one of an interrupted run.
      seconds: of training over all processes of the run, as `stop.seconds` counts them.
      rows: of metrics.jsonl.

    Returns:
      `duration` in seconds; `timesteps`, in environment steps; `fps`, steps per second of training in this
      process; the peak memory of the process and of a device in bytes; the latest `mean_return` of training
      and `eval_return`; and `curve`, the mean returns of training with steps and seconds. None for numbers
      that were not measured.
    """
    key = "episode/return"
    curve = [
        {"timesteps": row["step"], "seconds": row.get("time/budget_seconds"), "mean_return": row[key]}
        for row in rows
        if row.get(key) is not None
    ]
    paces = [row["time/steps_per_second"] for row in rows if row.get("time/steps_per_second")]
    return {
        "stop_reason": summary["stop_reason"],
        "duration": round(seconds, 3),
        "timesteps": summary["steps"],
        "fps": summary.get("steps_per_second") or (round(paces[-1]) if paces else None),
        "peak_memory_bytes": resources.peak_memory(),
        "mean_return": curve[-1]["mean_return"] if curve else None,
        "eval_return": summary.get("eval_return"),
        "curve": curve,
    }
