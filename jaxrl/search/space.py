"""The space of a search: the dimensions in which its configurations differ, and a check before its trials."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, declared_fields, words
from jaxrl.config.configuration import DEFAULT
from jaxrl.config.data_files import require_yaml
from jaxrl.config.declarations import section_of
from jaxrl.config.overrides import assign
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.runs.executor import RunNames
from jaxrl.search.dimension import Dimension, plain, read_dimension, with_argument


@dataclass(frozen=True)
class Space:
    """Dimensions in the order in which they were written."""

    dimensions: tuple[Dimension, ...]

    @classmethod
    def read(cls, file: str, algorithm: str = DEFAULT) -> Space:
        """Reads a YAML or JSON file; fields of the section of `algorithm` may vary.

        Raises:
          ConfigError: there is no such file, or something in it is wrong; the message names the field.
        """
        given = f"`--space` (={file!r})"
        data = require_yaml(given, file)
        if not isinstance(data, Mapping) or not data:
            raise ConfigError(
                f"{given} must hold fields and what they may become, such as "
                "`ppo.learning_rate: {log: [1e-5, 1e-2]}`"
            )
        return cls.parse(data, algorithm)

    @classmethod
    def parse(cls, data: Mapping[str, Any], algorithm: str = DEFAULT) -> Space:
        """Checks the values of each field, `{"ppo.learning_rate": {"log": [1e-5, 1e-2]}, ...}`.

        Raises:
          ConfigError: an unknown field, a wrong type or rule, an empty or reversed range.
        """
        if not data:
            raise ConfigError("the space is empty: name at least one field")
        declared = declared_fields(algorithm)
        section = section_of(algorithm).name
        dimensions = tuple(
            read_dimension(str(name), given, declared, section) for name, given in data.items()
        )
        for one, other in itertools.combinations(dimensions, 2):
            if one.field == other.field and not (one.argument and other.argument and one.name != other.name):
                raise ConfigError(f"`{other.name}` and `{one.name}` of the space change the same field")
        return cls(dimensions)

    def apply(self, config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
        """A copy of the configuration with the values of some dimensions.

        Raises:
          ConfigError: a value is not one of its field, or the configuration has no name with the argument.
        """
        changed = ConfigDict(config.to_dict())
        for dimension in self.dimensions:
            if dimension.name in values:
                value = values[dimension.name]
                if dimension.argument:
                    value = with_argument(dimension, changed, value)
                assign(changed, dimension.field, value)
        return changed

    def probes(self, config: ConfigDict) -> list[ConfigDict]:
        """`config`, and a copy with each single bound and choice; counts in it need not fit together.

        Raises:
          ConfigError: `config` is wrong, or lacks the name of an argument of the space.
        """
        check_config(config)
        alone = [
            self.apply(config, {dimension.name: value})
            for dimension in self.dimensions
            for value in dimension.extremes
        ]
        return [config, *alone]

    def grid(self) -> Iterator[dict[str, Any]]:
        """Every combination of the dimensions' grids; the last dimension varies fastest."""
        names = [dimension.name for dimension in self.dimensions]
        for values in itertools.product(*(dimension.grid() for dimension in self.dimensions)):
            yield dict(zip(names, values, strict=True))

    def at(self, units: Any) -> dict[str, Any]:
        """The point of the space at coordinates in [0, 1], one per dimension."""
        return {d.name: d.at(float(unit)) for d, unit in zip(self.dimensions, units, strict=True)}

    def to_json(self) -> dict[str, Any]:
        """The space as `parse` reads it."""
        return {
            d.name: {d.form: plain(d.choices or (d.low, d.high)), "points": d.points} for d in self.dimensions
        }


def require_trainable(configs: Sequence[ConfigDict], metric: str = "") -> RunNames:
    """The names of the runs of these configurations.

    Configurations whose counts fit only together with other values of the space are left out.

    Raises:
      ConfigError: one of them leads to no environment or network, or none of them writes `metric`, as far as
        that is known before a run.
    """
    checked = []
    for config in configs:
        with contextlib.suppress(ConfigError):
            checked.append(check_config(config))
    names = RunNames.of(checked)
    _require_written(metric, names)
    return names


def _require_written(metric: str, known: RunNames) -> None:
    """Raises ConfigError if no run writes `metric`, as far as that is known."""
    evaluated = metric.partition("/")[2] if metric.startswith("eval/") else ""
    evaluated = evaluated.removeprefix(f"{GREEDY}/").removeprefix(f"{SAMPLED}/")
    is_open = metric.startswith(known.open) or "/" in evaluated  # of the environment, or of a suite
    if metric and known.metrics and metric not in known.metrics and not is_open:
        hint = words.metric_hint(metric) or f"; those are {', '.join(known.metrics)}"
        raise ConfigError(f"`--metric` (={metric!r}): no run writes it{hint}")
