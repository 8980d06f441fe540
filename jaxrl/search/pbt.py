"""Population based training as a method of search: one population whose members exchange what they learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config
from jaxrl.runs.lineage import Lineage
from jaxrl.search.space import Space
from jaxrl.search.trials import StudyTrial


def require_exchangeable(space: Space, known: Sequence[str]) -> None:
    """Raises ConfigError if the space varies anything but ranges of `known` numeric hyperparameters."""
    for dimension in space.dimensions:
        if dimension.name not in known:
            text = f"is no numeric hyperparameter; those are {', '.join(known)}"
            raise ConfigError(
                f"`{dimension.name}` of the space: pbt changes values while it trains, and this {text}"
            )
        if dimension.form not in ("log", "uniform") or dimension.is_integer:
            integer = ", and the field no integer" if dimension.is_integer else ""
            raise ConfigError(
                f"`{dimension.name}` of the space: pbt multiplies values, so it must be log or "
                f"uniform{integer}"
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
    return {"ranges": ranges, "seed": seed, "lineage": Lineage.of(folder).path}


def with_last_values(trials: Sequence[StudyTrial], config: ConfigDict, folder: Path) -> list[StudyTrial]:
    """The trials with the values that their members had at the end, which may come from others.

    Trials that have had their values longest come first, as of equal scores the first is the best.
    """
    lineage = Lineage.of(folder)
    latest = {copy["member"]: _by_field(copy["values"], config) for copy in lineage.read()}
    found = [
        dataclasses.replace(trial, values={**trial.values, **latest.get(str(trial.number), {})})
        for trial in trials
    ]
    since = lineage.latest_copy_steps()
    return sorted(found, key=lambda trial: since.get(str(trial.number), 0))


def _by_field(values: Mapping[str, float], config: ConfigDict) -> dict[str, float]:
    section = check_config(config).section
    return {f"{section}.{name}": value for name, value in values.items()}
