"""python -m jaxrl.population.generation FILE: trains runs together, such as a search's."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax

from jaxrl.config import Config, from_json, read_section
from jaxrl.config.data_files import read_object
from jaxrl.config.local_files import replace_text
from jaxrl.parallel import cpu_devices
from jaxrl.parallel.compilation import use_compilation_cache
from jaxrl.parallel.sharding import Topology
from jaxrl.population.exchange import Exchange, Range
from jaxrl.population.members import Conditions, Member, train_members
from jaxrl.programs.hyperparameters import program_shape
from jaxrl.reporting.writers import MultiWriter
from jaxrl.reporting.writers.population import PopulationRows
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption, catch_signals


def train(file: Path, interruption: Interruption) -> None:
    """Trains the runs of `file`; writes the reason of each failure, else "", to FILE.results.json.

    Runs of one `program_shape` are one program; such groups are trained one after the other.
    """
    plan = read_object(file)
    members = []
    for run in plan["runs"]:
        config = read_section(from_json(run["config"]))  # The parent process has imported it.
        folder = RunFolder(run["folder"], config.checkpoint.keep, interruption)
        members.append(Member(run["name"], config, folder))
    exchange = None
    if given := plan["exchange"]:
        ranges = {name: Range(*each) for name, each in given["ranges"].items()}
        exchange = Exchange([m.name for m in members], ranges, given["seed"], Path(given["lineage"]))
    cpu_devices.offer_cpu_devices(min(len(members), cpu_devices.available_cores()))
    use_compilation_cache()
    groups: dict[Config, list[Member]] = {}
    for member in members:
        groups.setdefault(program_shape(member.config), []).append(member)
    results: dict[str, str] = {}
    for group in groups.values():
        if interruption.signum is None:
            results |= _train_group(group, interruption, exchange)
            replace_text(file.with_suffix(".results.json"), json.dumps(results))


def _train_group(
    group: Sequence[Member], interruption: Interruption, exchange: Exchange | None
) -> Mapping[str, str]:
    topology = Topology.of(min(len(group), jax.local_device_count()))
    rows = PopulationRows(len(group), MultiWriter(()))
    endings = train_members(group, rows, Conditions(topology, interruption), exchange)
    return {
        member.name: ending.error
        for member, ending in zip(group, endings, strict=True)
        if ending.summary is None or ending.summary["stop_reason"] != interruption.name
    }


if __name__ == "__main__":
    with catch_signals() as interruption:
        train(Path(sys.argv[1]), interruption)
    sys.exit(interruption.exit_code)
