"""jaxrl benchmark CONFIG: times a config, and says where the time goes.

  CONFIG                what to time: a config file, or the name of a shipped
                        one; or --config=CONFIG
  --env=SUITE:NAME      its environment; without CONFIG the shipped config that
                        suits it
  --config.FIELD=VALUE  changes a field (`jaxrl train --help` lists them)
  --seconds=S           how long to train for in all, after compilation and
                        warm-up (default: 20)
  --workdir=DIR         where benchmark_metrics.json goes (default: nowhere)
  --debug               full tracebacks instead of one line for bad input

Training is compiled ahead of time, warmed up, and runs in windows of equal
work; steps per second are those of the median window, updates included. Beside
it stands the machine's limit: the time that the matrix products alone would
take at the rate measured for one large product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.metrics.files import is_remote


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmark that `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_float("seconds", 20.0, "Seconds of training.", 0.1, command_line.LONGEST, flag_values=values)
    flags.DEFINE_string("workdir", None, "Folder of the result.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    left = command_line.parse_flags(values, argv, known_only=True)
    arguments = command_line.parse_training([argv[0], *left])
    command_line.require_single(arguments.config, "benchmark")
    workdir = values["workdir"].value
    if workdir and not is_remote(workdir):
        command_line.require_writable_folder("workdir", workdir)

    from jaxrl.diagnostics.throughput import measure
    from jaxrl.parallel.compilation import use_compilation_cache
    from jaxrl.training.run import choose_devices

    devices = choose_devices(arguments.config)
    use_compilation_cache()
    result = measure(arguments.config, devices, float(values["seconds"].value or 0))
    _show(result)
    if workdir:
        file = f"{workdir}/benchmark_metrics.json"
        print(f"written to {command_line.write_json('workdir', file, result)}")
    return 0


def _show(result: dict[str, Any]) -> None:
    from jaxrl.metrics import text
    from jaxrl.metrics.display import table

    low, high = result["steps_per_second_range"]
    seconds, memory, matmul, save = (
        result[name] for name in ("seconds_per_iteration", "peak_memory_bytes", "matmul", "save")
    )
    hardware, added = result["hardware"], seconds["host"] / seconds["total"]
    least, most = result["host_share_range"]
    pace, percent = text.pace, lambda share: f"{100 * share:.3g}%"
    parts = ", ".join(f"{name} {percent(seconds[name] / seconds['total'])}" for name in ("rollout", "update"))
    shares = ", ".join(f"{name.split('/')[1]} {percent(x)}" for name, x in result["shares"].items())
    rows = (
        ("trains", f"{result['environment']}, {result['num_envs']} environments"),
        ("on", f"{result['device']}; {hardware['cpu']}, {hardware['cores']} cores"),
        (
            "with",
            f"jax {result['versions']['jax']}, jaxrl {result['versions']['jaxrl']}",
        ),
        ("steps per second", f"{pace(result['steps_per_second'])}  [{pace(low)}, {pace(high)}]"),
        ("iteration", f"{1e3 * seconds['total']:.1f} ms: {parts}"),
        (
            "host",
            f"the loop of a run, which logs, adds {percent(added)}  [{percent(least)}, {percent(most)}]",
        ),
        *([("shares of the time", shares)] if shares else []),
        ("compile", f"{result['compile_seconds']:.1f} s"),
        ("peak memory", ", ".join(f"{name} {text.size(size)}" for name, size in memory.items() if size)),
        ("arithmetic", f"{matmul['flops_per_step'] / 1e6:.3g} MFLOP per step"),
        ("matmul rate", f"{matmul['flops_per_second'] / 1e9:.0f} GFLOP/s measured"),
        ("of that bound", f"{percent(matmul['fraction'])} of {pace(matmul['bound'])} steps per second"),
        ("checkpoint", f"holds training up for {1e3 * save['stall_seconds']:.0f} ms each"),
        ("", f"{percent(save['share'])} of the time at the configured interval"),
    )
    table.show_fields(rows, 18)
