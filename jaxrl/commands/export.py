"""jaxrl export RUN: writes a policy as StableHLO, ONNX or arrays.

The normaliser is inside; the carry is an input and an output. Every export is
read back and shown what the trained policy sees while that plays: exit code 1,
and no files, unless it takes the same actions. docs/export.md has the inputs
and outputs, and how to load each format.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import (
    CHECKPOINT,
    DEBUG,
    RUN,
    TRUST,
    WORKDIR,
    Argument,
    asked_sample,
    help_text,
    parse,
    run_folder,
)
from jaxrl.config import ConfigError
from jaxrl.config.local_files import is_remote

if TYPE_CHECKING:
    from jaxrl.inference.equivalence import EquivalenceCheck

_MOST_STEPS = 1_000_000  # they are played one by one
FORMATS = ("stablehlo", "onnx", "numpy", "safetensors")
ARGUMENTS = (
    RUN,
    WORKDIR,
    Argument(
        "--format=F",
        "stablehlo (runs with jax alone), onnx (onnxruntime), numpy or safetensors (arrays)",
        str,
    ),
    Argument("--output=DIR", "where to (default: WORKDIR/export/FORMAT)", str),
    CHECKPOINT,
    Argument("--sample", "sample actions, from a key that is one more input (stablehlo only)", bool),
    Argument(
        "--greedy",
        "take the most likely actions (default of stablehlo: what was better in the evaluations during "
        "training; the other formats always do)",
        bool,
    ),
    Argument(
        "--batch=N",
        "fixed batch size (stablehlo and onnx; default: any, where the network allows it)",
        int,
        low=1,
        high=command_line.LARGEST_BATCH,
    ),
    Argument(
        "--steps=N",
        "steps played to check what was written (default: {default}, in 8 environments)",
        int,
        200,
        low=1,
        high=_MOST_STEPS,
    ),
    TRUST,
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exports what `argv` asks for; returns the exit code (1: acts differently; 2: bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, left = parse(ARGUMENTS, argv, positional=True)
    workdir, kind = run_folder(values["workdir"], left), values["format"]
    if kind not in FORMATS:
        raise ConfigError(f"`--format` (={kind!r}) must be one of {', '.join(FORMATS)}")
    sample = asked_sample(values)
    if sample and kind != "stablehlo":
        raise ConfigError(
            f"`--sample` needs --format=stablehlo: draw from the distribution that {kind} returns"
        )
    if values["batch"] and kind in ("numpy", "safetensors"):
        raise ConfigError(f"`--batch` says nothing to --format={kind}: arrays know no batch")
    output = values["output"] or f"{workdir}/export/{kind}"
    if is_remote(output):
        raise ConfigError(f"`--output` (={output!r}) must be a local folder")
    command_line.require_writable_folder("output", output)

    from jaxrl.inference.export import export

    chosen = ("checkpoint", "batch", "steps", "trust")
    arguments: dict[str, Any] = {name: values[name] for name in chosen}
    result = export(workdir, kind, output, sample=sample, **arguments)
    print(f"checkpoint  step {result.step:,}")
    print(f"actions     {result.actions}")
    print(f"batch       {result.batch}")
    if sample is None and result.mode != result.actions:
        command_line.say(
            f"note        evaluations during training were better {result.mode}: draw from the distribution "
            f"that {kind} returns, or take --format=stablehlo"
        )
    _show(result.check, result.runtime)
    if not result.check.same:
        print(
            f"error: the {kind} export does not act as the trained policy; nothing was written",
            file=sys.stderr,
        )
        return 1
    for name, size in result.files.items():
        command_line.say(f"written     {output}/{name} ({size / 1e3:.1f} kB)")
    return 0


def _show(found: EquivalenceCheck, runtime: str) -> None:
    rows = found.steps * found.environments
    played = f"{found.steps} steps in {found.environments} environments, {found.resets} resets"
    print(f"checked     {played}, by {runtime}")
    different = found.different_actions
    verdict = f"different in {different} of" if different else "the same in all"
    print(f"actions     {verdict} {rows:,} rows")
    differences = ", ".join(f"{name} {x:.1e}" for name, x in found.largest_difference.items())
    print(f"difference  at most {differences} (relative to 1 + magnitude)")
