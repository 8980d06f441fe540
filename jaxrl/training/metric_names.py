"""The names of the metrics of a run, before it."""

from __future__ import annotations

from jaxrl import algorithms
from jaxrl.config import Config, environment_spec
from jaxrl.evaluation.modes import modes_of
from jaxrl.experience.base import declared_metrics
from jaxrl.experience.statistics import SUCCESS, EpisodeReports
from jaxrl.types import Axis

# Beginnings of metrics whose names depend on machine, levels, layers and what episodes report.
OPEN = ("env/", "grad/", "time/", "host/", "device/", "population/")
_EVALUATED = ("return", "return_std", "length")


def metric_names(config: Config) -> set[str]:
    """The metrics of a run's rows, without those that begin as in `OPEN`.

    Raises:
      ConfigError: the configuration, which is resolved, leads to no environment or network.
    """
    spec = environment_spec("env.name", config.env.name, config.env.name, config.env.wrappers)
    agent = algorithms.build_agent(config, spec)
    algorithm = algorithms.build(config, agent, Axis())
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
