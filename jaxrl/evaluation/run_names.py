"""python -m jaxrl.evaluation.run_names: the names of metrics and of numbers of runs, before them.

Reads a list of configurations from standard input and writes their names, both as JSON; the other
side is `jaxrl.runs.executor.RunNames`.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from ml_collections import ConfigDict

from jaxrl import algorithms
from jaxrl.config import Config, ConfigError, resolve
from jaxrl.config.environment import spec_of
from jaxrl.evaluation.during_training import EvaluationPlan
from jaxrl.evaluation.result import modes_of
from jaxrl.experience.collector import declared_metrics
from jaxrl.experience.statistics import SUCCESS, EpisodeReports
from jaxrl.types import Axis

# Beginnings of metrics whose names depend on machine, levels, layers and what episodes report.
OPEN = ("env/", "grad/", "time/", "host/", "device/", "population/")
_EVALUATED = ("return", "return_std", "length")


def metric_names(config: Config) -> set[str]:
    """The metrics of a run's rows, without names that begin as in `OPEN`.

    Raises:
      ConfigError: the configuration, which is resolved, leads to no environment or network.
    """
    spec = spec_of(config.env)
    agent = algorithms.build_agent(config, spec)
    algorithm = algorithms.build(config, agent, Axis())
    EvaluationPlan.of(config, spec)  # A suite may have levels that its policy cannot play.
    reports = EpisodeReports.of(spec, config.env.success)
    modes = modes_of(agent, config.evaluate.modes)
    places = ("eval/", *(f"eval/{mode}/" for mode in modes)) if len(modes) > 1 else ("eval/",)
    prefixes = ("", "unseen_") if config.evaluate.unseen else ("",)
    said = ("success_rate",) if SUCCESS in reports.labels else ()
    evaluated = {
        f"{place}{prefix}{name}" for place in places for prefix in prefixes for name in (*_EVALUATED, *said)
    }
    found = {*algorithm.metrics, *declared_metrics(reports), *evaluated, "steps"}
    return {name for name in found if not name.startswith(OPEN)}


def numeric_hyperparameters(config: Config) -> list[str]:
    """Their names as fields, such as "ppo.learning_rate"; without fields that are None in `config`."""
    names = [field.name for field in dataclasses.fields(algorithms.hyperparameters(config))]
    return [f"{config.section}.{name}" for name in names if getattr(config.learner, name) is not None]


def main() -> int:
    """Writes the fields of `RunNames`; or the first error, and returns 2."""
    known: set[str] = set()
    numbers: list[str] | None = None
    for data in json.loads(sys.stdin.read()):
        fields = {name: value for name, value in data.items() if name not in ("derived", "device_count")}
        try:
            # Devices of a run may have kernels that a CPU lacks.
            fields["network"] |= {"recurrence": "auto", "dense": "auto"}
            config = resolve(ConfigDict(fields), 1)
            known |= metric_names(config)
            numbers = numeric_hyperparameters(config) if numbers is None else numbers
        except ConfigError as error:
            print(" ".join(str(error).split()))
            return 2
    print(json.dumps({"metrics": sorted(known), "open": OPEN, "numbers": numbers or []}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
