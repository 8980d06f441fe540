"""Population based training as a method of search: one population whose members exchange what they learnt."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from jaxrl import algorithms
from jaxrl.config import Config, ConfigError, check_config
from jaxrl.experiments.search.space import Space
from jaxrl.experiments.search.trials import StudyTrial

LINEAGE = "lineage.jsonl"


def require_exchangeable(config: ConfigDict, space: Space) -> None:
    """Raises ConfigError where the space varies anything but ranges of numeric hyperparameters."""
    checked = check_config(config)
    known = [f"{checked.algorithm}.{name}" for name in _names(checked)]
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
    """What `jaxrl.training.population.exchange.Exchange` is made of, as plain JSON values."""
    ranges = {
        dimension.name.removeprefix(f"{config.algorithm}."): [
            dimension.low,
            dimension.high,
            dimension.form == "log",
        ]
        for dimension in space.dimensions
    }
    return {"ranges": ranges, "seed": seed, "lineage": str(folder / LINEAGE)}


def with_last_values(trials: Sequence[StudyTrial], config: ConfigDict, folder: Path) -> list[StudyTrial]:
    """The trials with the values that their members had at the end, which may come from others."""
    file = folder / LINEAGE
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    latest = {line["member"]: _by_field(line["values"], config) for line in lines}
    return [
        dataclasses.replace(trial, values={**trial.values, **latest.get(str(trial.number), {})})
        for trial in trials
    ]


def _by_field(values: Mapping[str, float], config: ConfigDict) -> dict[str, float]:
    return {f"{config.algorithm}.{name}": value for name, value in values.items()}


def _names(config: Config) -> list[str]:
    # Their shapes alone: to compute one would start JAX's devices, which the trials need.
    shapes = jax.eval_shape(lambda: algorithms.hyperparameters(config))
    names = [field.name for field in dataclasses.fields(shapes)]
    return [name for name in names if getattr(config.learner, name) is not None]
