"""jaxrl export RUN [RUN...]: writes a policy as StableHLO, ONNX or arrays.

For several runs it writes the ensemble. The normaliser is inside; the carry is
an input and an output. Every export is read back and compared with the trained
policy on its observations: exit code 1, and no files, unless the actions are
equal. docs/export.md has the inputs and outputs, and how to load each format.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import CHECKPOINT, TRUST, RunFlags, flag, sample_choice
from jaxrl.config import ConfigError
from jaxrl.config.local_files import is_remote

if TYPE_CHECKING:
    from jaxrl.inference.equivalence import EquivalenceCheck
    from jaxrl.inference.export import Exported

_MOST_STEPS = 1_000_000  # they are played one by one
FORMATS = ("stablehlo", "onnx", "numpy", "safetensors")


class _Flags(RunFlags):
    format: str | None = flag(
        "--format=F", "stablehlo (runs with jax alone), onnx (onnxruntime), numpy or safetensors (arrays)"
    )
    output: str | None = flag(
        "--output=DIR", "where to (default: WORKDIR/export/FORMAT; must be given for several runs)"
    )
    checkpoint: str = CHECKPOINT
    sample: bool = flag("--sample", "sample actions, from a key that is one more input (stablehlo only)")
    greedy: bool = flag(
        "--greedy",
        "take the most likely actions (default of stablehlo: what was better in the evaluations during "
        "training; the other formats always do)",
    )
    batch: int | None = flag(
        "--batch=N",
        "fixed batch size (stablehlo and onnx; default: any, if the network allows it)",
        within=(1, command_line.LARGEST_BATCH),
    )
    steps: int = flag(
        "--steps=N",
        "steps played to check what was written (default: {default}, in 8 environments)",
        200,
        within=(1, _MOST_STEPS),
    )
    trust: bool = TRUST


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    if len(left) > 1 and not flags.workdir:
        return _ensemble(flags, left)
    workdir = flags.folder(left)
    kind = _format_of(flags)
    sample = sample_choice(flags.sample, flags.greedy)
    if sample and kind != "stablehlo":
        raise ConfigError(
            f"`--sample` needs --format=stablehlo: sample from the distribution that {kind} returns"
        )
    output = _output(flags, f"{workdir}/export/{kind}")

    from jaxrl.inference.export import export

    result = export([workdir], kind, output, sample=sample, **_export_settings(flags))
    mode = result.description["mode"]
    if sample is None and mode != result.description["actions"]:
        command_line.say(
            f"note        evaluations during training were better {mode}: sample from the "
            f"distribution that {kind} returns, or take --format=stablehlo"
        )
    return _report(result, kind, output)


def _ensemble(flags: _Flags, runs: Sequence[str]) -> int:
    kind = _format_of(flags)
    if sample_choice(flags.sample, flags.greedy):
        raise ConfigError("`--sample`: several policies together take the best action by their mean")
    if not flags.output:
        raise ConfigError("`--output` is missing: name the folder for the export of several runs")
    output = _output(flags, "")

    from jaxrl.inference.export import export

    return _report(export(runs, kind, output, **_export_settings(flags)), kind, output)


def _output(flags: _Flags, default: str) -> str:
    """The folder to write, which must be a local one that can be written, and no run's."""
    from jaxrl.runs import records

    kind = flags.format
    if flags.batch and kind in ("numpy", "safetensors"):
        raise ConfigError(f"`--batch` does not apply to --format={kind}: arrays have no batch")
    output = flags.output or default
    if is_remote(output):
        raise ConfigError(f"`--output` (={output!r}) must be a local folder")
    command_line.require_writable_folder("output", output)
    records.require_no_runs(output, "output", own=(), depth=0)
    return output


def _format_of(flags: _Flags) -> str:
    if flags.format is None:
        raise ConfigError(f"`--format` is missing: one of {', '.join(FORMATS)}")
    if flags.format not in FORMATS:
        raise ConfigError(f"`--format` (={flags.format!r}) must be one of {', '.join(FORMATS)}")
    return flags.format


def _export_settings(flags: _Flags) -> dict[str, Any]:
    return {name: getattr(flags, name) for name in ("checkpoint", "batch", "steps", "trust")}


def _report(result: Exported, kind: str, output: str) -> int:
    for policy in result.policies:
        print(f"checkpoint  {policy.checkpoint}")
    print(f"actions     {result.description['actions']}")
    print(f"batch       {result.description['batch']}")
    _show(result.check, result.description["check"]["runtime"])
    if not result.check.same:
        acts = "the trained policy" if len(result.policies) == 1 else "the trained policies together"
        print(f"error: the {kind} export does not act as {acts}; nothing was written", file=sys.stderr)
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
