"""The results of benchmarks/accelerator.py as Markdown, for docs/performance.md. Standard library only."""

from __future__ import annotations

from typing import Any

_HEADINGS = (
    "trainer",
    "environment",
    "network",
    "environments",
    "precision",
    "command buffers",
    "million steps/s (slowest to fastest window)",
    "iteration, ms",
    "rollout, update, ms",
    "share of peak",
    "kernels",
    "estimate, ms",
    "compile, s",
)


def markdown(record: dict[str, Any]) -> str:
    """Heading, rows of what was measured, and a list of what was not, with the reason."""
    found = record["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in found.get("versions", {}).items())
    lines = [
        f"{found.get('devices', '?')} x {found.get('device', 'unknown')} ({found.get('platform', '?')}), "
        f"{record['date']}; {versions}.",
        f"`{record['command']}`, {record['seconds'] / 60:.1f} minutes.",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        f"|{'---|' * len(_HEADINGS)}",
    ]
    rows = record["rows"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows if "steps_per_second" in row["result"]]
    said = [row for row in rows if "said" in row["result"]]
    lines += ["", *(f"- {row['name']}: {row['result']['said']}" for row in said)]
    lost = [row for row in rows if "reason" in row["result"]]
    lines += [f"- {row['name']}: no result: {row['result']['reason']}" for row in lost]
    return "\n".join(lines).rstrip() + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    case, result = row["case"], row["result"]
    speed = f"{result['steps_per_second'] / 1e6:.3g}"
    if span := result.get("steps_per_second_range"):
        speed += f" ({span[0] / 1e6:.3g} to {span[1] / 1e6:.3g})"
    iteration, rollout = result.get("iteration_seconds"), result.get("rollout_seconds")
    phases = f"{_ms(rollout)}, {_ms(iteration - rollout)}" if rollout and iteration else ""
    estimate = result.get("estimate_seconds")
    share = result.get("share_of_peak")
    kernels = result.get("kernels")
    return [
        case["trainer"],
        case["env"],
        case["network"],
        f"{case['num_envs']:,}",
        case["precision"],
        case["command_buffers"],
        speed,
        _ms(iteration),
        phases,
        f"{share:.1%}" if share else "",
        f"{kernels:,}" if kernels else "",
        f"{_ms(estimate[0])} to {_ms(estimate[1])}" if estimate else "",
        f"{result['compile_seconds']:.1f}",
    ]


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}"
