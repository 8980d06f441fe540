"""The names that runs will have, from a process before any of them starts.

Making an environment may start JAX's devices, which belong to the runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jaxrl.config import Config, to_json
from jaxrl.config.environment import import_path, last_line

# The sections that decide the spaces and the network.
_SECTIONS = ("env", "network", "host", "evaluate", "normalize", "algorithm")


@dataclass(frozen=True)
class RunNames:
    """Names of some runs.

    Attributes:
      metrics: of what they write, without names that begin as in `open`.
      open: beginnings of metrics that are known only once a run writes them.
      numbers: the numeric hyperparameters of the first, as fields such as "ppo.learning_rate", without
        fields that are None there. Runs that differ in nothing else can be one program.
    """

    metrics: tuple[str, ...]
    open: tuple[str, ...]
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, configs: Iterable[Config]) -> RunNames:
        """Asks for the names; ConfigError if one of the configurations leads to no environment or network."""
        distinct: dict[str, dict[str, Any]] = {}
        for config in configs:
            data = to_json(config)
            distinct.setdefault(json.dumps({name: data[name] for name in _SECTIONS}), data)
        asked = json.dumps(list(distinct.values()))
        said = last_line(["-m", "jaxrl.evaluation.run_names"], import_path(), asked)
        return cls(**{name: tuple(names) for name, names in json.loads(said).items()})
