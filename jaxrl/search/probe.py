"""A check, in a process of its own, of the environments and networks that a space leads to.

Making an environment may start JAX's devices, which belong to the trials.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config, to_json
from jaxrl.config.sections import GREEDY, SAMPLED

if TYPE_CHECKING:
    from jaxrl.algorithms import Algorithm
    from jaxrl.envs.base import EnvSpec

_CHECK = "import sys; from jaxrl.search import probe; sys.exit(probe.check_input())"
_EVALUATED = ("return", "return_std", "length")
# Beginnings of metrics whose names depend on machine, levels, layers and what episodes report.
_OPEN = ("env/", "grad/", "time/", "host/", "device/", "population/")
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
    from jaxrl import algorithms
    from jaxrl.config import environment_spec, resolve
    from jaxrl.types import Axis

    given = json.loads(sys.stdin.read())
    known: set[str] = set()
    for data in given["configs"]:
        fields = {name: value for name, value in data.items() if name not in ("derived", "device_count")}
        try:
            fields["network"]["recurrence"] = "auto"  # The trials' devices may have kernels that a CPU lacks.
            config = resolve(ConfigDict(fields), 1)
            c = config.env
            spec = environment_spec("env.name", c.name, c.name, c.wrappers)
            agent = algorithms.build_agent(config, spec)
            known |= _metrics(config, algorithms.build(config, agent, Axis()), spec)
        except ConfigError as error:
            print(" ".join(str(error).split()))
            return 2
    metric = given["metric"]
    evaluated = metric.partition("/")[2] if metric.startswith("eval/") else ""
    evaluated = evaluated.removeprefix(f"{GREEDY}/").removeprefix(f"{SAMPLED}/")
    is_open = metric.startswith(_OPEN) or "/" in evaluated  # of the environment, or of a suite
    if metric and known and metric not in known and not is_open:
        print(f"`--metric` (={metric!r}): no run writes it; those are {', '.join(sorted(known))}")
        return 2
    return 0


def _metrics(config: Config, algorithm: Algorithm, spec: EnvSpec) -> set[str]:
    """The metrics of a run's rows, without those that begin as in `_OPEN`."""
    from jaxrl.evaluation.modes import modes_of
    from jaxrl.experience.base import declared_metrics
    from jaxrl.experience.statistics import SUCCESS, EpisodeReports

    reports = EpisodeReports.of(spec, config.env.success)
    modes = modes_of(algorithm.agent, config.evaluate.modes)
    places = ("eval/", *(f"eval/{mode}/" for mode in modes)) if len(modes) > 1 else ("eval/",)
    prefixes = ("", "unseen_") if config.evaluate.unseen else ("",)
    said = ("success_rate",) if SUCCESS in reports.labels else ()
    evaluated = {
        f"{place}{prefix}{name}" for place in places for prefix in prefixes for name in (*_EVALUATED, *said)
    }
    found = {*algorithm.metrics, *declared_metrics(reports), *evaluated, "steps"}
    return {name for name in found if not name.startswith(_OPEN)}
