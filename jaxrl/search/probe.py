"""A check, in a process of its own, of the environments and networks that a space leads to.

Making an environment may start JAX's devices, which belong to the trials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, to_json
from jaxrl.config.sections import GREEDY, SAMPLED

# The sections that decide the spaces and the network.
_SECTIONS = ("env", "network", "host", "evaluate", "normalize", "algorithm")


def require_trainable(configs: Sequence[ConfigDict], metric: str = "") -> None:
    """Raises ConfigError if one of the configurations leads to no environment or network.

    Also if none of them writes `metric`, as far as that is known before a run. Configurations whose counts
    fit only together with other values of the space are left out.
    """
    distinct: dict[str, dict[str, Any]] = {}
    for config in configs:
        try:
            data = to_json(check_config(config))
        except ConfigError:
            continue
        distinct.setdefault(json.dumps({name: data[name] for name in _SECTIONS}), data)
    path = os.pathsep.join(p for p in sys.path if p)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "jaxrl.evaluation.metric_names"],
        env=env,
        input=json.dumps(list(distinct.values())),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = (done.stdout if done.returncode == 2 else done.stderr).strip().splitlines()
        raise ConfigError(lines[-1] if lines else "the environment cannot be made")
    _require_written(metric, json.loads(done.stdout.splitlines()[-1]))  # An environment may print.


def _require_written(metric: str, known: Mapping[str, Any]) -> None:
    """Raises ConfigError if no run writes `metric`, as far as that is known."""
    evaluated = metric.partition("/")[2] if metric.startswith("eval/") else ""
    evaluated = evaluated.removeprefix(f"{GREEDY}/").removeprefix(f"{SAMPLED}/")
    is_open = metric.startswith(tuple(known["open"])) or "/" in evaluated  # of the environment, or of a suite
    if metric and known["names"] and metric not in known["names"] and not is_open:
        said = ", ".join(known["names"])
        raise ConfigError(f"`--metric` (={metric!r}): no run writes it; those are {said}")
