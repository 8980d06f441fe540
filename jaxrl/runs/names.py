"""The names that runs will have, from a process before any of them starts.

Making an environment may start JAX's devices, which belong to the runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jaxrl.config import Config, ConfigError, to_json

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
        """Asks for the names.

        Raises:
          ConfigError: one of the configurations leads to no environment or network.
        """
        distinct: dict[str, dict[str, Any]] = {}
        for config in configs:
            data = to_json(config)
            distinct.setdefault(json.dumps({name: data[name] for name in _SECTIONS}), data)
        path = os.pathsep.join(p for p in sys.path if p)
        done = subprocess.run(
            [sys.executable, "-m", "jaxrl.evaluation.run_names"],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path},
            input=json.dumps(list(distinct.values())),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            lines = (done.stdout if done.returncode == 2 else done.stderr).strip().splitlines()
            raise ConfigError(lines[-1] if lines else "the environment cannot be made")
        found = json.loads(done.stdout.splitlines()[-1])  # An environment may print.
        return cls(**{name: tuple(names) for name, names in found.items()})
