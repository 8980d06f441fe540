"""A check, before its trials, of the environments and networks that a space leads to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ml_collections import ConfigDict

from jaxrl.config import Config, ConfigError, check_config, words
from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.runs.names import RunNames


def require_trainable(configs: Sequence[ConfigDict], metric: str = "") -> RunNames:
    """The names of the runs of these configurations.

    Configurations whose counts fit only together with other values of the space are left out.

    Raises:
      ConfigError: one of them leads to no environment or network, or none of them writes `metric`, as far as
        that is known before a run.
    """
    names = RunNames.of(_checked_configs(configs))
    _require_written(metric, names)
    return names


def _checked_configs(configs: Sequence[ConfigDict]) -> Iterator[Config]:
    for config in configs:
        try:
            yield check_config(config)
        except ConfigError:
            continue


def _require_written(metric: str, known: RunNames) -> None:
    """Raises ConfigError if no run writes `metric`, as far as that is known."""
    evaluated = metric.partition("/")[2] if metric.startswith("eval/") else ""
    evaluated = evaluated.removeprefix(f"{GREEDY}/").removeprefix(f"{SAMPLED}/")
    is_open = metric.startswith(known.open) or "/" in evaluated  # of the environment, or of a suite
    if metric and known.metrics and metric not in known.metrics and not is_open:
        hint = words.metric_hint(metric) or f"; those are {', '.join(known.metrics)}"
        raise ConfigError(f"`--metric` (={metric!r}): no run writes it{hint}")
