"""TensorBoard's summaries beside curves: the configuration, hyperparameters, and a layout of charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config import default_config, flatten
from jaxrl.config.algorithms import algorithm_of
from jaxrl.config.declarations import COMMON

# Together with the algorithm's section, the columns of the hyperparameters tab.
_HYPERPARAMETERS = ("seed", "env", "network", "normalize")
_RESULTS = ("eval/return", "episode/return", "episode/length", "time/steps_per_second")
# Evaluations that play both ways have each metric three times: see docs/evaluation.md.
_MODES = "greedy/|sampled/"

_BINS = 30


def start_summaries(config: Mapping[str, Any], highlights: Sequence[tuple[str, str]]) -> list[Any]:
    """The summaries at the beginning of a run: its configuration (JSON values) and the layout of charts."""
    from tensorboardX import summary

    experiment, session, _ = summary.hparams(_hyperparameters(config), dict.fromkeys(_RESULTS, 0.0))
    charts = {
        group: {title: ["Multiline", tags] for title, tags in titles.items()}
        for group, titles in layout(highlights, bool(config.get("evaluate", {}).get("suite"))).items()
    }
    return [experiment, session, summary.custom_scalars(charts), summary.text("config", _table(config))]


def layout(highlights: Sequence[tuple[str, str]], suite: bool = False) -> dict[str, dict[str, list[str]]]:
    """Patterns of metrics by chart, charts by group.

    Args:
      highlights: (metric, label); each has a chart.
      suite: True if evaluations play a suite.
    """
    charts = {
        "Learning": {
            "return: training and evaluation": ["episode/return$", f"eval/({_MODES})?return$"],
            "return of an episode: lowest, mean, highest": ["episode/return(_min|_max)?$"],
            "episode length": ["episode/length", f"eval/({_MODES})?length$"],
        },
        "Environment": {
            "success rate": ["env/success_rate$", f"eval/({_MODES})?success_rate$"],
            "what the environment reports": ["env/.*"],
        },
        "Health": {label: [f"{key}$"] for key, label in highlights}
        | {"gradient norm by layer": ["grad/norm.*"]},
        "Speed": {
            "steps per second": ["time/steps_per_second"],
            "seconds by phase": ["time/.*_seconds"],
            "host": ["host/.*utilization"],
        },
    }
    if suite:
        charts["Categories"] = {
            label: [f"eval/(?!{_MODES}).+/{key}$"]
            for key, label in (("success_rate", "success rate"), ("efficiency", "efficiency"),
                               ("safety", "safety"), ("steps", "steps"), ("return", "return"))
        }  # fmt: skip
    return charts


def end_summaries(config: Mapping[str, Any]) -> list[Any]:
    """The summaries at the end of a run."""
    from tensorboardX import summary

    return [summary.hparams(_hyperparameters(config), {})[2]]


def histogram(name: str, values: Sequence[float]) -> Any:
    """The summary of a distribution."""
    from tensorboardX import summary

    return summary.histogram(name, values, _BINS)


def _hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    sections = [name for name, x in config.items() if isinstance(x, Mapping)]
    others = [name for name in sections if name not in (*COMMON, "derived")]  # that of the algorithm
    names = (*_HYPERPARAMETERS, *others)
    flat = flatten({name: config[name] for name in names if name in config})
    # The table has its columns in this order, and is far wider than a screen.
    first = [name for name in ("seed", *(f"{other}.learning_rate" for other in others)) if name in flat]
    ordered = {name: flat[name] for name in (*first, *flat)}
    return {
        name: str(x) if isinstance(x, (list, tuple)) else x for name, x in ordered.items() if x is not None
    }


def _table(config: Mapping[str, Any]) -> str:
    """The configuration as Markdown, fields that differ from the default first."""
    defaults = default_config(algorithm_of(config)).to_dict()
    default = {name: _plain(value) for name, value in flatten(defaults).items()}
    fields = {name: value for name, value in flatten(config).items() if name in default}
    changed = {name: value for name, value in fields.items() if value != default[name]}
    lines = ["| field | value | default |", "|---|---|---|"]
    lines += [f"| **{name}** | **{value}** | {default[name]} |" for name, value in changed.items()]
    lines += [f"| {name} | {value} | |" for name, value in fields.items() if name not in changed]
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
