"""A check, in a process of its own, of the environments and networks that a space leads to.

Making an environment may start JAX's devices, which belong to the trials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, to_json
from jaxrl.config.sections import GREEDY, SAMPLED

_CHECK = "import sys; from jaxrl.search import probe; sys.exit(probe.check_input())"
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
    text = json.dumps({"configs": list(distinct.values()), "metric": metric})
    done = subprocess.run([sys.executable, "-c", _CHECK], env=env, input=text, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout if done.returncode == 2 else done.stderr).strip().splitlines()
        raise ConfigError(lines[-1] if lines else "the environment cannot be made")


def check_input() -> int:
    """Checks the configurations on standard input; prints the first error and returns 2, else returns 0."""
    from jaxrl.config import resolve
    from jaxrl.training.metric_names import OPEN, metric_names

    given = json.loads(sys.stdin.read())
    known: set[str] = set()
    for data in given["configs"]:
        fields = {name: value for name, value in data.items() if name not in ("derived", "device_count")}
        try:
            fields["network"]["recurrence"] = "auto"  # The trials' devices may have kernels that a CPU lacks.
            known |= metric_names(resolve(ConfigDict(fields), 1))
        except ConfigError as error:
            print(" ".join(str(error).split()))
            return 2
    metric = given["metric"]
    evaluated = metric.partition("/")[2] if metric.startswith("eval/") else ""
    evaluated = evaluated.removeprefix(f"{GREEDY}/").removeprefix(f"{SAMPLED}/")
    is_open = metric.startswith(OPEN) or "/" in evaluated  # of the environment, or of a suite
    if metric and known and metric not in known and not is_open:
        print(f"`--metric` (={metric!r}): no run writes it; those are {', '.join(sorted(known))}")
        return 2
    return 0
