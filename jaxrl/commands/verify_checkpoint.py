"""jaxrl verify-checkpoint --workdir=DIR: compares every array of checkpoints with its digest.

  --workdir=DIR   folder of the run
  --step=N        only this checkpoint (default: all, and what lies beside them)
  --json          one JSON object instead of a table
  --debug         full tracebacks instead of one line for bad input

Every array is read and compared with the digest that was stored with it. Nothing is changed; neither the
environment nor an accelerator is needed. Exit code 0: all checkpoints are intact; 1: one is not, or none
is left; 2: bad input.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError
from jaxrl.runs import storage

if TYPE_CHECKING:
    from etils import epath

_CHECKPOINT, _SET_ASIDE, _UNFINISHED, _IGNORED = "checkpoint", "set aside", "unfinished", "ignored"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One checkpoint, or what lies in the place of one.

    Attributes:
      kind: "checkpoint"; "set aside": a trainer found it damaged; "unfinished": what a kill left of a save or
        of a deletion; "ignored": no checkpoint at all.
      path: where.
      problem: why it cannot be used, None if it can.
      size: bytes of its files.
      step, iteration, score, evaluation: as they were when it was saved; None where they are not known.
      arrays: number of arrays by field of the training state.
      bad: whether it is, or passes for, a checkpoint that the run could go on from, and is not intact.
    """

    kind: str
    path: str
    problem: str | None
    size: int
    step: int | None = None
    iteration: int | None = None
    score: float | None = None
    evaluation: Mapping[str, Any] | None = None
    arrays: Mapping[str, int] = dataclasses.field(default_factory=dict)
    bad: bool = False


def verify(workdir: str, step: int | None = None) -> list[Entry]:
    """Reads the checkpoints of a run, or only that of `step`, and compares them with their digests.

    Args:
      workdir: folder of the run, local or gs://.
      step: which one; None for all, and everything beside them.

    Raises:
      ConfigError: there is no such folder, no checkpoint in it, or not that of `step`.
    """
    from jaxrl.runs.checkpoint import folder as checkpoint_folder

    run = checkpoint_folder.open_folder(workdir)
    if not run.is_dir():
        raise ConfigError(f"`--workdir` (={workdir}) is no folder")
    try:
        contents = checkpoint_folder.find(run / "checkpoints")
        aside = sorted((run / "corrupt").iterdir()) if (run / "corrupt").is_dir() else []
    except OSError as error:
        raise ConfigError(f"`--workdir` (={workdir}) cannot be read: {error}") from error
    if step is not None and step not in contents.steps:
        known = ", ".join(str(s) for s in contents.steps) or "none"
        raise ConfigError(f"`--step` (={step}): no such checkpoint in {run}; available steps: {known}")
    chosen = contents.steps.items() if step is None else [(step, contents.steps[step])]
    # A trainer that is at work may have deleted one meanwhile.
    entries = [entry for s, path in chosen if (entry := _verified(_CHECKPOINT, path, s)) and path.exists()]
    if step is None:
        entries += [_verified(_SET_ASIDE, path, None) for path in aside]
        text = "was being written or deleted when a run ended"
        entries += [Entry(_UNFINISHED, str(p), f"{p} {text}", _size(p)) for p in contents.unfinished]
        entries += [_stray(path, kind, run) for path, kind in contents.ignored.items()]
    if not any(entry.kind in (_CHECKPOINT, _SET_ASIDE) for entry in entries):
        raise ConfigError(f"`--workdir` (={workdir}) holds no checkpoints")
    return entries


def main(argv: Sequence[str] | None = None) -> int:
    """Verifies what `argv` asks for; returns the exit code (0 intact, 1 damaged, 2 bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Folder of the run.", flag_values=values)
    flags.DEFINE_integer("step", None, "Only this checkpoint.", lower_bound=0, flag_values=values)
    flags.DEFINE_bool("json", False, "One JSON object.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    command_line.parse_flags(values, argv)
    workdir = values["workdir"].value
    if not workdir:
        raise ConfigError("`--workdir` is missing: name the folder of a run")
    storage.require_run_folder("--workdir", workdir)
    import jax

    # An accelerator may be in use by the very run that is looked at.
    jax.config.update("jax_platforms", "cpu")
    entries = verify(workdir, values["step"].value)
    intact = sum(entry.kind == _CHECKPOINT and entry.problem is None for entry in entries)
    bad = sum(entry.bad for entry in entries)
    ok = intact > 0 and bad == 0
    if values["json"].value:
        print(json.dumps({"ok": ok, "entries": [dataclasses.asdict(e) for e in entries]}, indent=2))
    else:
        _show(workdir, entries)
        print(f"{intact} intact, {bad} damaged" + ("" if intact or bad else ": none is left to go on from"))
    return 0 if ok else 1


def _verified(kind: str, path: epath.Path, step: int | None) -> Entry:
    from jaxrl.runs.checkpoint import folder as checkpoint_folder
    from jaxrl.runs.checkpoint.folder import CheckpointError

    entry = Entry(kind, str(path), None, _size(path), step)
    try:
        record = checkpoint_folder.read_record(path)
        counts = Counter(name.partition("/")[0] for name in record.arrays)
        entry = dataclasses.replace(
            entry,
            step=record.step,
            iteration=record.meta.get("iteration"),
            score=record.score,
            evaluation=record.meta.get("evaluation"),
            arrays=dict(sorted(counts.items())),
        )
        checkpoint_folder.read_arrays(path, record)
    except CheckpointError as error:
        return dataclasses.replace(entry, problem=str(error), bad=kind == _CHECKPOINT)
    return entry


def _stray(path: epath.Path, kind: str, run: epath.Path) -> Entry:
    """Something that is no checkpoint; a link that leads out of the run is bad."""
    entry = Entry(_IGNORED, str(path), f"{path} is {kind}, no checkpoint", 0)
    target = os.path.realpath(path)
    if kind == "a symbolic link" and not Path(target).is_relative_to(os.path.realpath(run)):
        return dataclasses.replace(entry, problem=f"{path} is {kind} that leads out of the run", bad=True)
    return entry


def _size(path: epath.Path) -> int:
    from jaxrl.runs.checkpoint import files as checkpoint_files

    try:
        return checkpoint_files.size(path)
    except OSError:
        return 0


def _show(workdir: str, entries: Sequence[Entry]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"checkpoints of {workdir}", style="bold", soft_wrap=True, markup=False)
    table = Table(box=None)
    for heading in ("step", "iteration", "size", "arrays", "return"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for entry in entries:
        table.add_row(*_cells(entry))
    console.print(table)
    for line in (*_holdings(entries), *(entry.problem for entry in entries if entry.problem)):
        console.print(line, soft_wrap=True, markup=False)


def _cells(entry: Entry) -> tuple[str, ...]:
    from jaxrl.metrics import text

    state = "damaged" if entry.bad else "ok" if entry.kind == _CHECKPOINT else entry.kind
    style = {"ok": "green", "damaged": "bold red"}.get(state, "dim")
    return (
        "-" if entry.step is None else text.count(entry.step),
        "-" if entry.iteration is None else text.count(entry.iteration),
        f"{entry.size / 1e6:.2f} MB",
        str(sum(entry.arrays.values())) if entry.arrays else "-",
        text.number(entry.score),
        f"[{style}]{state}[/]",
    )


def _holdings(entries: Sequence[Entry]) -> Iterator[str]:
    """What the checkpoints hold, each different answer once: `step 5 holds: params (4), key (1)`."""
    steps: dict[str, list[str]] = {}
    for entry in entries:
        if entry.kind == _CHECKPOINT and entry.arrays:
            held = ", ".join(f"{field} ({count})" for field, count in entry.arrays.items())
            steps.setdefault(held, []).append(f"{entry.step:,}")
    for held, names in steps.items():
        yield f"step {', '.join(names)}: arrays of {held}" if len(steps) > 1 else f"arrays of {held}"
