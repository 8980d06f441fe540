"""jaxrl preflight CONFIG: compiles a config and says whether it fits.

  CONFIG                what to train: a config file, or the name of a shipped
                        one; or --config=CONFIG
  --env=SUITE:NAME      its environment; without CONFIG the shipped config that
                        suits it
  --config.FIELD=VALUE  changes a field (`jaxrl train --help` lists them)
  --topology=SLICE      a Cloud TPU slice, GENERATION:SHAPE: v3, v4, v5e, v5p or
                        v6e, and its chips in each direction, such as v5e:4x8
                        (default: the devices of this machine). Needs the extra
                        tpu, but no TPU
  --find-batch          also search the largest env.num_envs that fits
  --debug               full tracebacks instead of one line for bad input

Compiles training and evaluation as a run would, and does not run them: memory
per core, operations, collectives and compile time are the compiler's. The exit
code is 1 where they do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config.remedies import memory_remedies
from jaxrl.metrics.display import table
from jaxrl.parallel import tpu_slices

if TYPE_CHECKING:
    from jaxrl.diagnostics.memory_fit import MemoryReport


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the preflight that `argv` asks for; returns the exit code (1: does not fit, 2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("topology", "", "Slice of a TPU pod.", flag_values=values)
    flags.DEFINE_bool("find-batch", False, "Search the largest env.num_envs.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    left = command_line.parse_flags(values, argv, known_only=True)
    config = command_line.parse_training([argv[0], *left]).config
    described = tpu_slices.parse(values["topology"].value) if values["topology"].value else None

    from jaxrl.diagnostics import memory_fit

    topology, limit, platform = memory_fit.target(config, described)
    resolved, unit = memory_fit.evenly_shared(config, topology.mesh.size)
    print("Compiles, and does not run: nothing below was measured.\n")
    if resolved.env.num_envs != config.env.num_envs:
        text = (
            f"`env.num_envs` (={config.env.num_envs}) does not divide over {topology.mesh.size} devices: "
            f"it must be a multiple of {unit}. Examined with --config.env.num_envs={resolved.env.num_envs}"
        )
        table.show_fields([("", text), ("", "")], 0)
    enforced = described is not None
    report = memory_fit.examine(resolved, topology, limit, enforced)
    clock = described.chip.clock if described else 0.0
    _show(report, f"{topology.description}{platform}", clock)
    if not values["find-batch"].value:
        return 0 if report.fits else command_line.FAILED

    def try_one(count: int) -> MemoryReport:
        found = memory_fit.examine(
            memory_fit.with_environments(resolved, count), topology, limit, enforced, evaluation=False
        )
        verdict = "fits" if found.fits else "does not fit"
        print(f"{'':<13} {count:,} {verdict}: {_bytes(found.needed)}", flush=True)
        return found

    print("\nsearching the largest env.num_envs:")
    best, fails = memory_fit.find_batch(report, unit, try_one)
    return _show_batch(best, fails, unit)


def _show(report: MemoryReport, devices: str, clock: float) -> None:
    config = report.config
    rows = [
        (
            "config",
            f"{config.env.name}, {config.env.num_envs:,} environments, {config.envs_per_device:,} each",
        ),
        ("devices", devices),
        ("fits", _verdict(report)),
    ]
    if memory := report.memory:
        parts = ("arguments", "results", "temporaries", "code")
        split = ", ".join(f"{name} {_bytes(getattr(memory, name))}" for name in parts)
        rows.append(("training", f"{_bytes(memory.peak)}: {split}"))
    if report.evaluation:
        rows.append(("evaluation", f"{_bytes(report.evaluation.peak)}, {config.evaluate.episodes} episodes"))
    per_step = report.flops * config.device_count / config.steps_per_iteration
    products = f"{report.flops / 1e9:.3g} GFLOP of matrix products per iteration and device"
    rows.append(("arithmetic", f"{products}, {per_step / 1e6:.3g} MFLOP per step"))
    if work := report.work:
        if work.cycles and clock:
            without = f", without {work.kernels} calls of kernels" if work.kernels else ""
            estimate = f"{1e3 * work.cycles / clock:.3g} ms per iteration by the compiler's own estimate"
            rows.append(("", estimate + without))
        kinds = ", ".join(f"{count} {kind}" for kind, count in work.kinds().items()) or "none"
        rows.append(
            ("collectives", f"{kinds} per iteration, {_bytes(work.exchanged_bytes)} from each device")
        )
    trained, evaluated = report.seconds
    rows.append(("compile", f"training {trained:.1f} s, evaluation {evaluated:.1f} s"))
    table.show_fields(rows, 14)
    if not report.fits:
        _show_largest(report)


def _verdict(report: MemoryReport) -> str:
    if report.fits:
        share = (report.needed or 0) / report.limit
        return f"yes: {_bytes(report.needed)} of {_bytes(report.limit)} on each device ({100 * share:.2g}%)"
    needs = f"{_bytes(report.needed)} needed, {_bytes(report.limit)} on each device"
    return f"NO: {needs}{'; ' + report.complaint if report.complaint else ''}"


def _show_largest(report: MemoryReport) -> None:
    print("\nlargest arrays on each device, as traced; the compiler pads some and never stores others:")
    for array in report.largest:
        print(f"{_bytes(array.bytes):>13} {array.type}  {array.operation}  {array.line}")
    print()
    table.show_fields([("takes less", memory_remedies(report.config))], 14)


def _show_batch(best: MemoryReport | None, fails: int | None, unit: int) -> int:
    if best is None:
        print(f"largest       none: not even {unit:,} environments fit")
        return command_line.FAILED
    count = best.config.env.num_envs
    bound = f"{fails:,} do not" if fails else "the search ends there"
    found = f"--config.env.num_envs={count} fits, {bound}; {_bytes(best.needed)} on each device"
    table.show_fields([("largest", found)], 14)
    return 0


def _bytes(count: int | None) -> str:
    if count is None:
        return "unknown"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
