"""Prints the environments with a published figure, and what `jaxrl train --env` reaches, as Markdown.

  python benchmarks/known_table.py

It measures nothing: the figures are those of jaxrl/config/known_environments.yaml. docs/results.md has the
table, and a test compares the two.
"""

from __future__ import annotations

from jaxrl.config.files import load_config
from jaxrl.config.selection import KnownEnvironment, MeasuredReturn, known_environments


def flags(known: KnownEnvironment, measured: MeasuredReturn) -> str:
    """What follows `jaxrl train`; steps only where the config and its settings say another number."""
    name = known.names[0] + measured.arguments
    given = f'--env="{name}"' if measured.arguments else f"--env={name}"
    steps = known.settings.get("stop.steps", load_config(known.config).stop.steps)
    return given if steps == round(measured.steps * 1e6) else f"{given} --steps={measured.steps * 1e6:.0f}"


def row(known: KnownEnvironment, measured: MeasuredReturn) -> str:
    """One environment: its command, what it reaches, what others report."""
    seeds = f"{measured.seeds} seed{'s' * (measured.seeds > 1)}"
    ours = f"{measured.score} ({'; '.join(filter(None, (seeds, measured.note)))})"
    published = "; ".join(map(str, known.published))
    cells = (f"`{flags(known, measured)}`", f"`{known.config}`", f"{measured.steps:g}", measured.seconds)
    return f"| {' | '.join((*cells, ours, published))} |"


def table() -> str:
    """All environments with a measured and a published figure, in the order of the table."""
    lines = [
        "| `jaxrl train` | config | million steps | seconds | here | published |",
        "|---|---|---|---|---|---|",
    ]
    known = known_environments()
    return "\n".join(lines + [row(x, x.measured) for x in known if x.measured and x.published])


if __name__ == "__main__":
    print(table())
