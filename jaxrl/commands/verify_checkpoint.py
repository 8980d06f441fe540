"""jaxrl verify-checkpoint RUN: compares arrays with their digests.

Every array is read and compared with the digest that was stored with it.
Nothing is changed; neither the environment nor an accelerator is needed. Exit
code 0: all checkpoints are intact; 1: one is not, or none is left; 2: bad
input.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jaxrl.commands import command_line
from jaxrl.commands.arguments import JSON, RunFlags, flag
from jaxrl.config.fields import LARGEST_COUNT

if TYPE_CHECKING:
    from rich.text import Text

    from jaxrl.runs.checkpoint.verification import CheckpointEntry


class _Flags(RunFlags):
    step: int | None = flag(
        "--step=N",
        "only this checkpoint (default: all, and what lies beside them)",
        within=(0, LARGEST_COUNT),
    )
    as_json: bool = JSON


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    workdir = flags.folder(left)
    import jax

    from jaxrl.runs.checkpoint.verification import CHECKPOINT, verify
    from jaxrl.runs.members import member_folders
    from jaxrl.training.progress import Progress

    # An accelerator may be in use by the very run that is looked at.
    jax.config.update("jax_platforms", "cpu")
    runs = member_folders(workdir) or [workdir]
    entries = {run: verify(run, flags.step, Progress.check) for run in runs}
    intact = {run: sum(e.kind == CHECKPOINT and e.problem is None for e in entries[run]) for run in runs}
    bad = {run: sum(entry.bad for entry in entries[run]) for run in runs}
    ok = all(intact.values()) and not any(bad.values())
    if flags.as_json:
        found = [dataclasses.asdict(entry) for run in runs for entry in entries[run]]
        print(json.dumps({"ok": ok, "entries": found}, indent=2))
        return 0 if ok else 1
    for run in runs:
        _show(run, entries[run])
        none = "" if intact[run] or bad[run] else ": none is left to resume from"
        print(f"{intact[run]} intact, {bad[run]} damaged{none}")
    return 0 if ok else 1


def _show(workdir: str, entries: Sequence[CheckpointEntry]) -> None:
    from jaxrl.reporting.display import table

    command_line.say(f"checkpoints of {workdir}")
    headings = ("step", "iteration", "size", "arrays", "return", "state")
    table.show(headings, [_cells(entry) for entry in entries], names=0)
    problems = (entry.problem for entry in entries if entry.problem)
    if lines := [*_notes(entries), *problems]:
        print()
        table.show_fields([("", line) for line in lines], 0)


def _cells(entry: CheckpointEntry) -> tuple[str | Text, ...]:
    from rich.text import Text

    from jaxrl.config import text

    state = "damaged" if entry.bad else "ok" if entry.kind == "checkpoint" else entry.kind
    style = {"ok": "green", "damaged": "bold red"}.get(state, "dim")
    return (
        "-" if entry.step is None else text.count(entry.step),
        "-" if entry.iteration is None else text.count(entry.iteration),
        text.size(entry.size),
        str(sum(entry.arrays.values())) if entry.arrays else "-",
        text.number(entry.score),
        Text(state, style=style),
    )


def _notes(entries: Sequence[CheckpointEntry]) -> Iterator[str]:
    """The contents of the checkpoints and the notes of users, each different one once, with its steps."""
    held: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}
    for entry in entries:
        at = "?" if entry.step is None else f"{entry.step:,}"
        if entry.kind == "checkpoint" and entry.arrays:
            arrays = ", ".join(f"{field} ({count})" for field, count in entry.arrays.items())
            held.setdefault(arrays, []).append(at)
        for name, value in entry.metadata.items():
            line = f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
            noted.setdefault(" ".join(line.split()), []).append(at)
    for arrays, steps in held.items():
        yield f"step {', '.join(steps)}: arrays of {arrays}" if len(held) > 1 else f"arrays of {arrays}"
    for line, steps in noted.items():
        yield f"{line} (step {', '.join(steps)})"
