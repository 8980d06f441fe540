"""Population based training as a method of search: one population whose members exchange what they learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config
from jaxrl.config.data_files import read_objects
from jaxrl.population.exchange import held_since
from jaxrl.population.hyperparameters import numeric_hyperparameters
from jaxrl.search.space import Space
from jaxrl.search.trials import StudyTrial

LINEAGE = "lineage.jsonl"


def require_exchangeable(config: ConfigDict, space: Space) -> None:
    """Raises ConfigError if the space varies anything but ranges of numeric hyperparameters."""
    known = numeric_hyperparameters(config)
    for dimension in space.dimensions:
        if dimension.name not in known:
            text = f"is no numeric hyperparameter; those are {', '.join(known)}"
            raise ConfigError(
                f"`{dimension.name}` of the space: pbt changes values while it trains, and this {text}"
            )
        if dimension.form not in ("log", "uniform"):
            raise ConfigError(
                f"`{dimension.name}` of the space: pbt multiplies values, so it must be log or uniform"
            )


def exchange_of(config: ConfigDict, space: Space, seed: int, folder: Path) -> dict[str, Any]:
    """The arguments of `jaxrl.population.exchange.Exchange`, as plain JSON values."""
    section = check_config(config).section
    ranges = {
        dimension.name.removeprefix(f"{section}."): [
            dimension.low,
            dimension.high,
            dimension.form == "log",
        ]
        for dimension in space.dimensions
    }
    return {"ranges": ranges, "seed": seed, "lineage": str(folder / LINEAGE)}


def with_last_values(trials: Sequence[StudyTrial], config: ConfigDict, folder: Path) -> list[StudyTrial]:
    """The trials with the values that their members had at the end, which may come from others.

    Those that have had theirs longest come first, as of equal scores the first is the best.
    """
    file = folder / LINEAGE
    lines = read_objects(file) if file.exists() else ()
    latest = {line["member"]: _by_field(line["values"], config) for line in lines}
    found = [
        dataclasses.replace(trial, values={**trial.values, **latest.get(str(trial.number), {})})
        for trial in trials
    ]
    since = held_since(file)
    return sorted(found, key=lambda trial: since.get(str(trial.number), 0))


def _by_field(values: Mapping[str, float], config: ConfigDict) -> dict[str, float]:
    section = check_config(config).section
    return {f"{section}.{name}": value for name, value in values.items()}
