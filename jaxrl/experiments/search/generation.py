"""python -m jaxrl.experiments.search.generation FILE: trains runs of a search together."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxrl.config import Config, from_json
from jaxrl.metrics.files import replace_text
from jaxrl.metrics.writers import MultiWriter
from jaxrl.metrics.writers.population import PopulationRows
from jaxrl.parallel import cpu_devices
from jaxrl.parallel.compilation import use_compilation_cache
from jaxrl.parallel.sharding import Topology
from jaxrl.parallel.signals import Interruption, caught_signals
from jaxrl.runs.folder import RunFolder
from jaxrl.training.population.exchange import Exchange, Range
from jaxrl.training.population.members import Conditions, Member, program_shape, train_members


def train(file: Path, interruption: Interruption) -> None:
    """Trains the runs of `file`; writes to FILE.results.json why each failed, "" where it did not.

    Runs of one `program_shape` are one program; one such group is trained after the other.
    """
    told = json.loads(file.read_text())
    members = list(_members(told["runs"], interruption))
    exchange = told["exchange"] and _exchange(members, told["exchange"])
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


def _members(runs: Sequence[Mapping[str, Any]], interruption: Interruption) -> Iterator[Member]:
    for told in runs:
        config = from_json(told["config"])
        yield Member(told["name"], config, RunFolder(told["folder"], config.checkpoint.keep, interruption))


def _exchange(members: Sequence[Member], told: Mapping[str, Any]) -> Exchange:
    ranges = {name: Range(*given) for name, given in told["ranges"].items()}
    return Exchange([member.name for member in members], ranges, told["seed"], Path(told["lineage"]))


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
    with caught_signals() as interruption:
        train(Path(sys.argv[1]), interruption)
    sys.exit(interruption.exit_code)
