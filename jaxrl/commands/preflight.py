"""jaxrl preflight CONFIG: compiles a config and checks whether it fits.

Compiles training and evaluation as a run would, and does not run them: memory
per core, operations, kernels, collectives and compile time are the compiler's,
the time of an iteration on a GPU is an estimate. The exit code is 1 if they do
not fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, ENV, Argument, CommandArguments, flag
from jaxrl.config import ReplayConfig
from jaxrl.config.construction import memory_remedies
from jaxrl.parallel import topologies
from jaxrl.parallel.gpus import Gpu, Gpus
from jaxrl.parallel.tpu_slices import Slice
from jaxrl.reporting.display import table

if TYPE_CHECKING:
    from jaxrl.diagnostics.launches import Launches
    from jaxrl.diagnostics.memory_fit import MemoryReport
    from jaxrl.parallel.topologies import DescribedDevices

# Of the largest arrays, if the program fits.
_LARGEST_SHOWN = 3
# On each GPU, a search tries multiples of so many environments.
_GPU_UNIT = 1024


class _Flags(CommandArguments):
    config = Argument(
        "CONFIG", "what to train: a config file, or the name of a shipped one; or --config=CONFIG"
    )
    env = ENV
    config_field = CONFIG_FIELD
    topology: str = flag(
        "--topology=DEVICES",
        "what to compile for (default: this machine's devices). A Cloud TPU slice, GENERATION:SHAPE: v3, "
        "v4, v5e, v5p or v6e, and its chips in each direction, such as v5e:4x8; needs the extra tpu, but "
        "no TPU. Or GPUs of one host, GPU or GPU:COUNT: a100, l4, rtx4090, h100, h200, b200 or rtx5090, "
        "such as h100:8; needs the extra cuda12, but no GPU",
        "",
    )
    find_batch: bool = flag("--find-batch", "also search the largest env.num_envs that fits")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    arguments = run_arguments.parse_single("preflight", left)
    config = arguments.config
    described = topologies.parse(flags.topology) if flags.topology else None

    from jaxrl.diagnostics import memory_fit

    topology, limit, platform = memory_fit.target(config, described)
    resolved, unit = memory_fit.share_evenly(config, topology.mesh.size)
    arguments.announce()
    print("Compiles, and does not run: nothing below was measured.\n")
    if resolved.env.num_envs != config.env.num_envs:
        text = (
            f"`env.num_envs` (={config.env.num_envs}) does not divide over {topology.mesh.size} devices: "
            f"it must be a multiple of {unit}. Examined with --config.env.num_envs={resolved.env.num_envs}"
        )
        table.show_fields([("", text)], 0)
        print()
    enforced = described is not None and described.enforces_memory
    report = memory_fit.examine(resolved, topology, limit, enforced)
    _show(report, f"{topology.description}{platform}", described)
    if not flags.find_batch:
        return 0 if report.fits else command_line.FAILED

    def try_one(count: int) -> MemoryReport:
        changed = memory_fit.with_environments(resolved, count)
        found = memory_fit.examine(changed, topology, limit, enforced, evaluation=False)
        verdict = "fits" if found.fits else "does not fit"
        print(f"{'':<13} {count:,} {verdict}: {_bytes(found.needed)}", flush=True)
        return found

    print("\nsearching the largest env.num_envs:")
    if isinstance(described, Gpus):
        # XLA finds no tiles for products of some uneven numbers of rows, if it cannot try kernels.
        unit = math.lcm(unit, _GPU_UNIT * described.count)
    best, fails = memory_fit.find_batch(report, unit, try_one)
    if best is None:
        print(f"largest       none: not even {unit:,} environments fit")
        return command_line.FAILED
    bound = f"{fails:,} do not" if fails else "the search ends there"
    count = best.config.env.num_envs
    said = f"--config.env.num_envs={count} fits, {bound}; {_bytes(best.needed)} on each device"
    table.show_fields([("largest", said)], 14)
    return 0


def _show(report: MemoryReport, devices: str, described: DescribedDevices | None) -> None:
    config = report.config
    shares = f"{config.env.num_envs:,} environments, {config.envs_per_device:,} each"
    rows = [("config", f"{config.env.name}, {shares}"), ("devices", devices), ("fits", _verdict(report))]
    if memory := report.memory:
        parts = ("arguments", "results", "temporaries", "code")
        split = ", ".join(f"{name} {_bytes(getattr(memory, name))}" for name in parts)
        rows.append(("training", f"{_bytes(memory.peak)}: {split}"))
    if report.replay:
        assert isinstance(config.learner, ReplayConfig)
        steps = config.learner.rows(config.env.num_envs) * config.envs_per_device
        each = f"{steps:,} steps of {_bytes(report.replay // steps)} each"
        rows.append(("replay", f"{_bytes(report.replay)} of it: {each}"))
    if report.evaluation:
        rows.append(("evaluation", f"{_bytes(report.evaluation.peak)}, {config.evaluate.episodes} episodes"))
    per_step = report.flops * config.device_count / config.steps_per_iteration
    products = f"{report.flops / 1e9:.3g} GFLOP of matrix products per iteration and device"
    rows.append(("arithmetic", f"{products}, {per_step / 1e6:.3g} MFLOP per step"))
    if work := report.work:
        clock = described.chip.clock if isinstance(described, Slice) else 0.0
        if work.cycles and clock:
            without = f", without {work.own_kernels} calls of kernels" if work.own_kernels else ""
            estimate = f"{1e3 * work.cycles / clock:.3g} ms per iteration by the compiler's own estimate"
            rows.append(("", estimate + without))
        kinds = ", ".join(f"{count} {kind}" for kind, count in work.kinds().items()) or "none"
        sent = f"{_bytes(work.exchanged_bytes)} from each device"
        rows.append(("collectives", f"{kinds} per iteration, {sent}"))
    if report.launches:
        rows += _kernels(report.launches, config.rollout_length)
    if report.launches and isinstance(described, Gpus):
        rows += _estimate(report, report.launches, described.gpu)
    trained, evaluated = report.seconds
    rows.append(("compile", f"training {trained:.1f} s, evaluation {evaluated:.1f} s"))
    table.show_fields(rows, 14)
    print("\nlargest arrays on each device, as traced; the compiler pads some and never stores others:")
    for array in report.largest[: _LARGEST_SHOWN if report.fits else None]:
        print(f"{_bytes(array.bytes):>13} {array.type}  {array.operation}  {array.line}")
    if not report.fits:
        print()
        table.show_fields([("takes less", memory_remedies(report.config))], 14)


def _kernels(launches: Launches, rollout_length: int) -> list[tuple[str, str]]:
    phases = ", ".join(f"{name} {count:,}" for name, count in launches.phases.most_common())
    rows = [("kernels", f"{launches.kernels:,} per iteration: {phases}")]
    conditionals = f"{launches.conditionals:,} per iteration"
    if step := launches.innermost("rollout"):
        turns_per_step = step.turns / rollout_length
        rows.append(("", f"{step.kernels * turns_per_step:.3g} per rollout step"))
        conditionals += f", {step.conditionals * turns_per_step:.3g} per rollout step"
    rows.append(("conditionals", conditionals))
    for number, loop in enumerate(launches.loops):
        where = f"{loop.turns:,} x {loop.kernels} in a loop of {loop.phase}"
        if loop.turns == 1:
            where = f"{loop.kernels} outside of loops"
        moved = f", {_bytes(loop.bytes)} each"
        rows.append(("" if number else "loops", where + moved))
    return rows


def _estimate(report: MemoryReport, launches: Launches, gpu: Gpu) -> list[tuple[str, str]]:
    """The time that an iteration may take, each part with its assumptions."""
    from jaxrl.diagnostics.launches import LAUNCH_SECONDS, IterationTime

    config = report.config
    bfloat16 = config.network.compute_dtype == "bfloat16"
    peak = gpu.bfloat16_flops if bfloat16 else gpu.tf32_flops
    time = IterationTime.of(launches.kernels, launches.bytes, report.flops, gpu.bandwidth, peak)
    slow, fast = (config.steps_per_iteration / seconds / 1e6 for seconds in (time.most, time.least))
    span = f"{_ms(time.least)} to {_ms(time.most)} per iteration, {slow:.3g} to {fast:.3g} M steps/s"
    dtype = "bfloat16" if bfloat16 else "TF32"
    each = f"{1e6 * LAUNCH_SECONDS:g} us for each kernel, conditionals nothing"
    moved = f"{launches.bytes / 1e9:.3g} GB at {gpu.bandwidth / 1e12:.3g} TB/s, nothing kept in caches"
    products = f"matrix products at the peak, {peak / 1e12:.4g} TFLOP/s in {dtype}; collectives nothing"
    return [
        ("estimate", f"{span}: a model, not a measurement; from all parts at once to one after the other"),
        ("  launches", f"{_ms(time.launches)}: {each}"),
        ("  memory", f"{_ms(time.memory)}: {moved}"),
        ("  arithmetic", f"{_ms(time.arithmetic)}: {products}"),
    ]


def _ms(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _verdict(report: MemoryReport) -> str:
    if report.fits:
        share = (report.needed or 0) / report.limit
        return f"yes: {_bytes(report.needed)} of {_bytes(report.limit)} on each device ({100 * share:.2g}%)"
    needs = f"{_bytes(report.needed)} needed, {_bytes(report.limit)} on each device"
    return f"NO: {needs}{'; ' + report.complaint if report.complaint else ''}"


def _bytes(count: int | None) -> str:
    if count is None:
        return "unknown"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
