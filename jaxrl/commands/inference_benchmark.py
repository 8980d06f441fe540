"""jaxrl inference-benchmark CONFIG: measures latency and throughput of acting.

A call goes from observations in the host's memory to actions there: normaliser,
network and choice of the action in one compiled program; the carry stays on the
device. Latencies are percentiles over single calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, ENV, TRUST, Argument, CommandArguments, flag
from jaxrl.config import ConfigError
from jaxrl.config.text import counted


class _Flags(CommandArguments):
    config = Argument("CONFIG", "an untrained policy (as fast): a config file, or the name of a shipped one")
    env = ENV
    config_field = CONFIG_FIELD
    workdir: str | None = flag("--workdir=DIR", "instead of CONFIG: the policy of a run")
    trust: bool = TRUST
    all_architectures: bool = flag(
        "--all", "every encoder and architecture that takes the observations, times every core"
    )
    batch: str = flag("--batch=1,8,64,512", "batch sizes", "1,8,64,512")
    seconds: float = flag(
        "--seconds=S",
        "how long for each batch size, after compilation and warm-up (default: {default})",
        1.0,
        within=(0.01, command_line.LONGEST),
    )
    output: str | None = flag(
        "--output=FILE", "JSON file (default: DIR/inference_benchmark.json; with CONFIG: none)"
    )


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    workdir = flags.workdir
    if workdir and left:
        raise ConfigError(f"`{left[0]}` is no flag of a run that has its configuration already (--workdir)")
    arguments = None if workdir else run_arguments.parse_training(["jaxrl", *left])

    batches = _batches(flags.batch)

    from jaxrl.diagnostics.architectures import benchmark_latency

    trained = None
    if arguments is None:
        from jaxrl.evaluation import trained_policy
        from jaxrl.inference import PolicyFunction

        policy = trained_policy.load(str(workdir), devices=1, trust=flags.trust)
        config, trained = policy.config, PolicyFunction.of(policy)
    else:
        from jaxrl.config import resolve
        from jaxrl.parallel import tpu_slices

        tpu_slices.hush_libtpu()
        config = resolve(arguments.config, 1)
    record = benchmark_latency(config, trained, flags.all_architectures, batches, flags.seconds)
    if arguments is not None:
        arguments.announce()
    _show(record)
    output = flags.output or (f"{workdir}/inference_benchmark.json" if workdir else None)
    if output:
        command_line.write_json("output", output, record)
    return 0


def _batches(text: str) -> list[int]:
    """`1,8,64` as numbers."""
    most = command_line.LARGEST_BATCH
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 8 and 0 < int(part) <= most for part in parts):
        rule = f"positive integers of at most {most} with commas between them"
        raise ConfigError(f"`--batch` (={text!r}) must be {rule}")
    return [int(part) for part in parts]


def _show(record: dict[str, Any]) -> None:
    from jaxrl.reporting.display import table

    device = record["device"]
    on = f"{device['kind']}, {counted(device['host_cores'], 'host core')}, jax {record['versions']['jax']}"
    command_line.say(f"{record['environment']} on {on}; milliseconds")
    rows = []
    last = None
    for x in record["results"]:
        architecture = (x["encoder"], x["core"], f"{x['parameters']:,}")
        shown = ("", "", "") if architecture == last else architecture
        last = architecture
        times = (f"{x[p]:.3f}" for p in ("p50_ms", "p95_ms", "p99_ms"))
        rows.append((*shown, f"{x['batch']:,}", *times, f"{x['throughput']:,.0f}"))
    table.show(("encoder", "core", "parameters", "batch", "p50", "p95", "p99", "obs/s"), rows, names=2)
