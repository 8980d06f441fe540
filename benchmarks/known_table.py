"""Prints the environments with a published figure, and what `jaxrl train --env` reaches, as Markdown.

  python benchmarks/known_table.py

It measures nothing: the figures are those of jaxrl/config/known_environments.py. docs/results.md has the
table, and a test compares the two.
"""

from __future__ import annotations

from jaxrl.config.known_environments import KNOWN, KnownEnvironment
from jaxrl.config.known_returns import MeasuredReturn


def row(known: KnownEnvironment, measured: MeasuredReturn) -> str:
    """One environment: its command, what it reaches, what others report."""
    seeds = f"{measured.seeds} seed{'s' * (measured.seeds > 1)}"
    ours = f"{measured.score} ({'; '.join(filter(None, (seeds, measured.note)))})"
    published = "; ".join(map(str, known.published))
    cells = (f"`--env={known.names[0]}`", f"`{known.config}`", f"{measured.steps:g}", measured.seconds)
    return f"| {' | '.join((*cells, ours, published))} |"


def table() -> str:
    """All environments that were measured and of which a figure is published, in the order of KNOWN."""
    lines = [
        "| `jaxrl train` | config | million steps | seconds | here | published |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join(
        lines + [row(known, known.measured) for known in KNOWN if known.measured and known.published]
    )


if __name__ == "__main__":
    print(table())
