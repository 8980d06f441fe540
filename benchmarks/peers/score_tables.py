"""The table of `time_to_score.py`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scores import EPISODES, TASKS, TRAINERS
from tables import header, row

Sample = Mapping[str, Any]


def markdown(record: Mapping[str, Any], left_out: Mapping[str, str]) -> str:
    """The whole page: machine, commands, the table, who is missing, versions."""
    hardware, samples = record["hardware"], record["samples"]
    lines = [
        "# Time to a score",
        "",
        f"- Machine: {hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, "
        f"{hardware['os']}.",
        f"- Date: {record['date']}. Load average when it started: {hardware['load']}.",
        *(f"- Command: `{command}`" for command in record["commands"]),
        "- Seconds from the start of the process to its end: the first evaluation at the score, the mean of "
        f"{EPISODES} greedy episodes. Medians and ranges over the seeds that reached it.",
        "",
        *table(samples),
        *_missing(record["skipped"], left_out),
        "",
        "Versions:",
        "",
    ]
    for name in _names(samples):
        found = next((x["versions"] for x in samples if x["trainer"] == name and "versions" in x), {})
        lines.append(f"- {name}: " + ", ".join(f"{package} {version}" for package, version in found.items()))
    return "\n".join(lines) + "\n"


def table(samples: Sequence[Sample]) -> list[str]:
    """A row for each trainer of each task, the fastest cold one first; those that did not get there last."""
    lines = header("task|score|trainer|empty cache, s|filled cache, s|reached|steps|settings")
    for task in TASKS.values():
        rows = []
        for name in _names(samples):
            mine = [x for x in samples if x["trainer"] == name and x["task"] == task.name]
            if mine:
                rows.append((_rank(mine), _cells(task.name, name, mine)))
        lines += [row([task.name, f"{task.score:g}", *cells]) for _, cells in sorted(rows)]
    return lines


def _rank(samples: Sequence[Sample]) -> float:
    walls = _walls(samples, "cold")
    return statistics.median(walls) if walls else float("inf")


def _cells(task: str, name: str, samples: Sequence[Sample]) -> list[str]:
    reached = [x for x in samples if x["reached"]]
    steps = f"{statistics.median(x['steps'] for x in reached):,.0f}" if reached else ""
    count = f"{len(reached)} of {len(samples)}"
    if missed := [x for x in samples if not x["reached"]]:
        count += f": {'; '.join(_why(why, missed) for why in sorted({x['why'] for x in missed}))}"
    return [
        name,
        *(_range(_walls(samples, state)) for state in ("cold", "warm")),
        count,
        steps,
        TRAINERS[name].ships[task],
    ]


def _why(why: str, missed: Sequence[Sample]) -> str:
    """The reason of some samples, with the lowest and the highest return that they ended at."""
    means = [x["eval_return"] for x in missed if x["why"] == why and "eval_return" in x]
    ends = sorted({f"{mean:.1f}" for mean in (min(means), max(means))}, key=float) if means else []
    return f"{why}, at {' to '.join(ends)}" if ends else why


def _walls(samples: Sequence[Sample], state: str) -> list[float]:
    return [x["wall_seconds"] for x in samples if x["cache"] == state and x["reached"]]


def _range(walls: Sequence[float]) -> str:
    if len(walls) < 2:
        return "".join(f"{x:.1f}" for x in walls)
    return f"{statistics.median(walls):.1f} ({min(walls):.1f} to {max(walls):.1f})"


def _missing(skipped: Sequence[Mapping[str, str]], left_out: Mapping[str, str]) -> list[str]:
    lines = [f"- {x['task']}, {x['trainer']}: it {x['reason']}" for x in skipped]
    lines += [f"- {name}: {why}" for name, why in left_out.items()]
    return ["", "Not measured:", "", *lines]


def _names(samples: Sequence[Sample]) -> list[str]:
    return [name for name in TRAINERS if any(x["trainer"] == name for x in samples)]
