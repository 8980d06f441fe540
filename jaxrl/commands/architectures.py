"""jaxrl architectures: the named networks, with size and speed of each.

Each is measured on the observations of one environment; those that see what it
does not show are named with the reason. Which are small: docs/architectures.md.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from jaxrl.commands import command_line, run_arguments
from jaxrl.commands.arguments import CONFIG_FIELD, Argument, CommandArguments, flag

_CONFIG = "ppo_architectures"


class _Flags(CommandArguments):
    config = Argument(
        "CONFIG", f"what is trained, a config file or the name of a shipped one (default: {_CONFIG})"
    )
    env = Argument(
        "--env=SUITE:NAME", "another environment (default: jaxrl:Platformer with all that it shows)"
    )
    config_field = CONFIG_FIELD
    seconds: float = flag(
        "--seconds=S",
        "how long to train each, after compilation: minutes in all on a CPU; 0: do not train "
        "(default: {default})",
        2.0,
        within=(0.0, command_line.LONGEST),
    )
    output: str | None = flag("--output=FILE", "JSON file with the figures (default: none)")


@command_line.command(__doc__, _Flags, known_only=True)
def main(flags: _Flags, left: Sequence[str]) -> int:
    if not any(x.startswith("--config=") or not x.startswith("-") for x in left):
        left = [_CONFIG, *left]
    arguments = run_arguments.parse_single("architectures", left)

    from jaxrl.config import resolve, versions
    from jaxrl.diagnostics import architectures
    from jaxrl.parallel import tpu_slices
    from jaxrl.parallel.compilation import use_compilation_cache

    tpu_slices.hush_libtpu()
    config = resolve(arguments.config, 1)
    use_compilation_cache()
    suitable, others = architectures.suitable_configs(config)
    arguments.announce()
    names = ", ".join(each.network.architecture for each in suitable)
    command_line.say(f"{len(suitable)} for {config.env.name}: {names}")
    for name, why in others.items():
        command_line.say(f"left out: {name}: {why}")
    found = list(architectures.measure(suitable, flags.seconds, command_line.measuring))
    import jax

    record = {
        "environment": config.env.name,
        "device": {"kind": jax.devices()[0].device_kind, "host_cores": os.cpu_count()},
        "versions": versions(),
        "architectures": [dataclasses.asdict(x) for x in found],
        "others": others,
    }
    _show(record)
    if flags.output:
        command_line.write_json("output", flags.output, record)
    return 0


def _show(record: dict[str, Any]) -> None:
    from jaxrl.reporting.display import table

    device = record["device"]
    on = f"{device['kind']}, {device['host_cores']} host cores, jax {record['versions']['jax']}"
    command_line.say(f"{record['environment']} on {on}")
    rows = []
    for x in record["architectures"]:
        rate = "" if x["steps_per_second"] is None else f"{x['steps_per_second']:,.0f}"
        work = (f"{x['mflop_per_step']:.2f}", f"{x['mflop_per_update']:,.0f}", f"{x['p50_ms']:.3f}", rate)
        rows.append((x["architecture"], ", ".join(x["sees"]), f"{x['parameters']:,}", *work))
    titles = ("name", "sees", "parameters", "MFLOP/step", "MFLOP/update", "p50 ms", "steps/s")
    table.show(titles, rows, names=2)
