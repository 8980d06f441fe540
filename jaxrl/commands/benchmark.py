"""jaxrl benchmark CONFIG: times a config, and shows how the time is spent.

Training is compiled ahead of time, warmed up, and runs in windows of equal
work; steps per second are for the median window, updates included. Beside
it stands the machine's limit: the time that the matrix products alone would
take at the rate measured for one large product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, ENV, Argument, CommandArguments, flag


class _Flags(CommandArguments):
    config = Argument(
        "CONFIG", "what to time: a config file, or the name of a shipped one; or --config=CONFIG"
    )
    env = ENV
    config_field = CONFIG_FIELD
    seconds: float = flag(
        "--seconds=S",
        "how long to train for in all, after compilation and warm-up (default: {default})",
        20.0,
        within=(0.1, command_line.LONGEST),
    )
    workdir: str | None = flag("--workdir=DIR", "where throughput.json goes (default: nowhere)")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    arguments = run_arguments.parse_single("benchmark", left)
    if flags.workdir:
        command_line.require_writable_folder("workdir", flags.workdir)

    from jaxrl.diagnostics.throughput import measure
    from jaxrl.parallel.compilation import use_compilation_cache
    from jaxrl.training.device_count import choose_devices

    devices = choose_devices(arguments.config)
    use_compilation_cache()
    result = measure(arguments.config, devices, flags.seconds)
    arguments.announce()
    _show(result)
    if flags.workdir:
        command_line.write_json("workdir", f"{flags.workdir}/throughput.json", result)
    return 0


def _show(result: dict[str, Any]) -> None:
    from jaxrl.config import text
    from jaxrl.reporting.display import table

    low, high = result["steps_per_second_range"]
    seconds, memory, matmul, save = (
        result[name] for name in ("seconds_per_iteration", "peak_memory_bytes", "matmul", "save")
    )
    clock = result["config"]["derived"]["clock"]
    hardware = result["hardware"]
    added = seconds["host"] / seconds["total"]
    least, most = result["host_share_range"]
    pace = text.pace

    def percent(share: float) -> str:
        return f"{100 * share:.3g}%"

    parts = ", ".join(f"{name} {percent(seconds[name] / seconds['total'])}" for name in ("rollout", "update"))
    shares = ", ".join(f"{name.split('/')[1]} {percent(x)}" for name, x in result["shares"].items())
    rows = (
        ("trains", f"{result['environment']}, {result['num_envs']} environments"),
        ("on", f"{result['device']}; {hardware['cpu']}, {text.counted(hardware['cores'], 'core')}"),
        ("with", f"jax {result['versions']['jax']}, jaxrl {result['versions']['jaxrl']}"),
        (f"{clock} per second", f"{pace(result['steps_per_second'])}  [{pace(low)}, {pace(high)}]"),
        ("iteration", f"{1e3 * seconds['total']:.1f} ms: {parts}"),
        (
            "host",
            f"the loop of a run, which logs, adds {percent(added)}  [{percent(least)}, {percent(most)}]",
        ),
        *([("shares of the time", shares)] if shares else []),
        ("compile", f"{result['compile_seconds']:.1f} s"),
        ("peak memory", ", ".join(f"{name} {text.size(size)}" for name, size in memory.items() if size)),
        ("arithmetic", f"{matmul['flops_per_step'] / 1e6:.3g} MFLOP per {clock[:-1]}"),
        ("matmul rate", f"{matmul['flops_per_second'] / 1e9:.0f} GFLOP/s measured"),
        ("of that bound", f"{percent(matmul['fraction'])} of {pace(matmul['bound'])} {clock} per second"),
        ("checkpoint", f"holds training up for {1e3 * save['stall_seconds']:.0f} ms each"),
        ("", f"{percent(save['share'])} of the time at the configured interval"),
    )
    table.show_fields(rows, 18)
