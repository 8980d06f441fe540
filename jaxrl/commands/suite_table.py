"""The table that `jaxrl evaluate --suite=FILE` prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jaxrl.config.text import counted

_COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "episodes": lambda row: f"{row['episodes']:,}",
    "success": lambda row: _number(row["success_rate"], "{:.1%}"),
    "95% interval": lambda row: (
        "-" if row["success_low"] is None else f"{row['success_low']:.1%} - {row['success_high']:.1%}"
    ),
    "return": lambda row: f"{row['return_mean']:.1f} ± {row['return_std']:.1f}",
    "steps": lambda row: f"{row['length']:.1f}",
    "to success": lambda row: _number(row["steps_to_completion"], "{:.1f}"),
    "efficiency": lambda row: _number(row["efficiency"], "{:.2f}"),
    "cost": lambda row: _number(row["cost"], "{:.2f}"),
    "safety": lambda row: _number(row["safety"], "{:.1%}"),
}


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def show(report: Mapping[str, Any]) -> None:
    """Prints the report of a suite."""
    from rich.text import Text

    from jaxrl.reporting.display import table

    print(f"suite {report['suite']}")
    rows = []
    for mode, found in report["modes"].items():
        for i, (name, row) in enumerate({**found["categories"], "all": found["all"]}.items()):
            first = mode if i == 0 else ""
            cells = (first, name, *(cell(row) for cell in _COLUMNS.values()))
            rows.append([Text(cell, style="bold" if name == "all" else "") for cell in cells])
    table.show(("actions", "category", *_COLUMNS), rows, names=2)
    unfinished = sum(found["all"]["unfinished"] for found in report["modes"].values())
    if unfinished:
        print(f"{counted(unfinished, 'episode')} cut off: the environment has no time limit")
