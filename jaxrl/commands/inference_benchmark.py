"""jaxrl inference-benchmark CONFIG: measures latency and throughput of acting.

  CONFIG                an untrained policy (as fast): a config file, or the
                        name of a shipped one
  --env=SUITE:NAME      its environment; without CONFIG the shipped config that
                        suits it
  --config.FIELD=VALUE  changes a field (`jaxrl train --help` lists them)
  --workdir=DIR         instead of CONFIG: the policy of a run
  --trust               import the modules that this run's configuration names
                        (module:Class): they can run any code
  --all                 every encoder that takes the observations, times every
                        core
  --batch=1,8,64,512    batch sizes
  --seconds=S           how long for each batch size, after compilation and
                        warm-up (default: 1)
  --output=FILE         JSON file (default: DIR/inference_benchmark.json; with
                        CONFIG: none)
  --debug               full tracebacks instead of one line for bad input

A call goes from observations in the host's memory to actions there: normaliser,
network and choice of the action in one compiled program; the carry stays on the
device. Latencies are percentiles over single calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from jaxrl.commands import command_line
from jaxrl.config import ConfigError

if TYPE_CHECKING:
    from envs.base import EnvSpec
    from jaxrl.config import Config
    from jaxrl.inference import PolicyFunction


def main(argv: Sequence[str] | None = None) -> int:
    """Times what `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(__doc__, _job, argv)


def _job(argv: Sequence[str]) -> int:
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Folder of a run.", flag_values=values)
    flags.DEFINE_bool("all", False, "Every architecture.", flag_values=values)
    flags.DEFINE_string("batch", "1,8,64,512", "Batch sizes.", flag_values=values)
    flags.DEFINE_float("seconds", 1.0, "Seconds for each.", 0.01, command_line.LONGEST, flag_values=values)
    flags.DEFINE_string("output", None, "JSON file.", flag_values=values)
    flags.DEFINE_bool("trust", False, "Import modules that the run names.", flag_values=values)
    flags.DEFINE_bool("debug", False, "Full tracebacks.", flag_values=values)
    left = command_line.parse_flags(values, argv, known_only=True)
    workdir = values["workdir"].value
    if workdir and left:
        raise ConfigError(f"`{left[0]}` is no flag of a run that has its configuration already (--workdir)")
    arguments = None if workdir else command_line.parse_training([argv[0], *left])

    batches = _batches(str(values["batch"].value))

    from jaxrl.diagnostics.latency import benchmark

    if arguments is None:
        config, spec, trained = _of_run(str(workdir), bool(values["trust"].value))
    else:
        config, spec, trained = _of_config(arguments.config)
    seconds = float(values["seconds"].value or 0)
    record = benchmark(config, spec, trained, bool(values["all"].value), batches, seconds)
    _show(record)
    output = values["output"].value or (f"{workdir}/inference_benchmark.json" if workdir else None)
    if output:
        print(f"written to {command_line.write_json('output', output, record)}")
    return 0


def _batches(text: str) -> list[int]:
    """`1,8,64` as numbers.

    Raises:
      ConfigError: it is no list of positive integers.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(
        part.isdecimal() and len(part) < 8 and 0 < int(part) <= command_line.LARGEST_BATCH for part in parts
    ):
        rule = f"positive integers of at most {command_line.LARGEST_BATCH} with commas between them"
        raise ConfigError(f"`--batch` (={text!r}) must be {rule}")
    return [int(part) for part in parts]


def _of_run(workdir: str, trust: bool) -> tuple[Config, EnvSpec, PolicyFunction | None]:
    from jaxrl.evaluation import trained_policy
    from jaxrl.inference import PolicyFunction

    policy = trained_policy.load(workdir, devices=1, trust=trust)
    return policy.config, policy.spec, PolicyFunction.of(policy)


def _of_config(given: Any) -> tuple[Config, EnvSpec, PolicyFunction | None]:
    from envs import registry
    from jaxrl.config import resolve
    from jaxrl.parallel import tpu_slices

    tpu_slices.hush_libtpu()
    config = resolve(given, 1)
    return config, registry.spec_of(config.env.name, config.env.wrappers), None


def _show(record: dict[str, Any]) -> None:
    from jaxrl.metrics.display import table

    device = record["device"]
    on = f"{device['kind']}, {device['host_cores']} host cores, jax {record['versions']['jax']}"
    print(f"{record['environment']} on {on}; milliseconds")
    rows, last = [], None
    for x in record["results"]:
        architecture = (x["encoder"], x["core"], f"{x['parameters']:,}")
        shown = ("", "", "") if architecture == last else architecture
        last = architecture
        times = (f"{x[p]:.3f}" for p in ("p50_ms", "p95_ms", "p99_ms"))
        rows.append((*shown, f"{x['batch']:,}", *times, f"{x['throughput']:,.0f}"))
    table.show(("encoder", "core", "parameters", "batch", "p50", "p95", "p99", "obs/s"), rows, names=2)
