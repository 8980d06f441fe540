"""Reports of an environment about its episodes: entries of `TimeStep.info`, one number for each episode."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

PER_EPISODE = ("last", "sum", "max", "mean")
# The name of a metric follows: letters as in paths of TensorBoard.
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")


@dataclasses.dataclass(frozen=True)
class InfoMetric:
    """One entry of `TimeStep.info` that is reported of every episode, as `env/NAME`.

    An entry is a number or a bool at every step; NaN reports nothing, as does an entry that an environment
    on the host leaves out. Of an entry called `success` the share of episodes in which it is above 0 is
    reported, as `env/success_rate`; an episode that reports nothing is no success.

    Attributes:
      name: the key in `info`.
      per_episode: how the values of an episode's steps are joined: the "last", their "sum", the "max"
        or their "mean".
    """

    name: str
    per_episode: str = "last"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name == "success_rate":
            raise ValueError(
                f"InfoMetric.name (={self.name!r}) must be letters, digits and `._-/`, and not "
                "success_rate: it becomes the name of a metric"
            )
        if self.per_episode not in PER_EPISODE:
            rule = f"must be one of {', '.join(PER_EPISODE)}"
            raise ValueError(f"InfoMetric.per_episode (={self.per_episode!r}) {rule}")


def joined_key(name: str, per_episode: str) -> str:
    """The key in `info` of one step that stands for several, of what these steps come to by `per_episode`.

    Such a step has it for every entry and each of `PER_EPISODE`, beside the entry itself: a report may want
    something else of it than the environment declares. No report is called so.
    """
    return f"{name} {per_episode}"


def names_of(info: Iterable[str]) -> list[str]:
    """The keys of `info` without the keys of `joined_key`, sorted."""
    keys = set(info)
    return sorted(keys - {joined_key(name, how) for name in keys for how in PER_EPISODE})


def entry(info: Mapping[str, Any], report: InfoMetric) -> Any:
    """The value of a report in a step: the entry of its name, or its value joined over several steps."""
    key = joined_key(report.name, report.per_episode)
    return info[key] if key in info else info[report.name]


def set_entry(info: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """`info` with another entry, and nothing of what several steps came to of one of its name."""
    old = {joined_key(name, how) for how in PER_EPISODE}
    return {key: x for key, x in info.items() if key not in old} | {name: value}


def check_reports(name: str, reports: object) -> None:
    """Raises ValueError unless `reports`, of the field `name`, is a tuple of reports of different names."""
    if not isinstance(reports, tuple) or not all(isinstance(report, InfoMetric) for report in reports):
        raise ValueError(f"{name} (={reports!r}) must be a tuple of jaxrl.InfoMetric")
    names = [report.name for report in reports]
    for twice in {x for x in names if names.count(x) > 1}:
        raise ValueError(f"{name} has two reports of {twice!r}; one number is reported of each")


def with_report(reports: Iterable[InfoMetric], new: InfoMetric) -> tuple[InfoMetric, ...]:
    """The reports with a new one, which replaces one of its name."""
    return (*(report for report in reports if report.name != new.name), new)
