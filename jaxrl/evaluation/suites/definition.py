"""The file of an evaluation suite, read and checked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrl.config.data_files import require_yaml
from jaxrl.config.errors import ConfigError, did_you_mean, errors_as
from jaxrl.config.fields import above, at_least, check
from jaxrl.config.files import shipped_file, shipped_names
from jaxrl.config.sections import Success
from jaxrl.envs.base import InfoMetric
from jaxrl.evaluation.result import MODES
from jaxrl.experience.statistics import SUCCESS, EpisodeReports

# The type and rules of each field of a level; the suite sets the defaults of all but the first.
_LEVEL: dict[str, tuple[Any, ...]] = {
    "env": (str,),
    "wrappers": (tuple[str, ...],),
    "episodes": (int, at_least(1)),
    "success": (str,),
    "cost": (str,),
    "steps": (float, above(0)),
    "tasks": (str,),
}
_SUITE: dict[str, tuple[Any, ...]] = {"name": (str,), "modes": (tuple[str, ...],), "seed": (int, at_least(0))}
COST = "cost"  # the label of a level's cost among what is recorded of its episodes
_NAME = re.compile(r"[\w ._-]{1,100}")


@dataclasses.dataclass(frozen=True)
class Level:
    """One environment of a category.

    Attributes:
      env, wrappers: as in a configuration; None takes the wrappers of the run.
      episodes: how many to play in each mode.
      success: the rule, or None: by what the environment tells of success, if it does.
      cost: key of the environment's info that is summed over each episode, or None.
      steps: the number that counts as 1 in normalised steps; None takes the environment's longest episode.
      tasks: a group of the environment's tasks, such as `category=simple`; "" plays its default task.
    """

    env: str
    wrappers: tuple[str, ...] | None = None
    episodes: int = 100
    success: Success | None = None
    cost: str | None = None
    steps: float | None = None
    tasks: str = ""

    @property
    def reports(self) -> EpisodeReports:
        """The values that are recorded of each episode beside return and length."""
        entries = {COST: InfoMetric(self.cost, "sum")} if self.cost else {}
        if self.success and self.success.is_info:
            entries[SUCCESS] = InfoMetric(self.success.subject, "max")
        return EpisodeReports(tuple(entries.items()), self.success)


@dataclasses.dataclass(frozen=True)
class Suite:
    """Categories by name, each of some levels.

    Attributes:
      given: how the user named it, for messages.
      name: part of the report's file name.
      modes: "greedy", "sampled" or both.
      seed: decides the episodes.
    """

    given: str
    name: str
    modes: tuple[str, ...]
    seed: int
    categories: Mapping[str, tuple[Level, ...]]


def read(name: str, field: str = "--suite") -> Suite:
    """Reads a suite from YAML or JSON.

    Args:
      name: the file, or the name of a shipped suite.
      field: where that was given, for messages.

    Raises:
      ConfigError: there is no such file, or something in it is wrong; the message names the field.
    """
    given = f"`{field}` (={name!r})"
    file = shipped_file(name, "suites")
    data = require_yaml(given, file, name, lambda: shipped_names("suites"))
    if not isinstance(data, dict) or not isinstance(data.get("categories"), dict) or not data["categories"]:
        raise ConfigError(f"{given} must hold `categories`, each a list of environments")
    with errors_as(ConfigError, given, ConfigError):
        return _suite(data, given, Path(file).stem)


def require_metric_names(suite: Suite) -> None:
    """Raises ConfigError unless categories differ in the names of metrics."""
    names = [metric_name(category) for category in suite.categories]
    for category, name in zip(suite.categories, names, strict=True):
        if names.count(name) > 1 or name in ("all", "env", *MODES):
            raise ConfigError(
                f"{suite.given}: the category {category!r} needs another name for its metrics eval/{name}/..."
            )


def metric_name(category: str) -> str:
    """A category as a part of the names of metrics: `full room` is `full_room`."""
    return re.sub(r"[^\w.-]+", "_", category).strip("_") or "_"


def _suite(data: Mapping[str, Any], given: str, stem: str) -> Suite:
    given_fields = {key: value for key, value in data.items() if key != "categories"}
    defaults = _check_fields(given_fields, _SUITE | _LEVEL, "")
    if "env" in defaults:
        raise ConfigError("`env` belongs to a level of a category, not to the whole suite")
    categories = {}
    for name, levels in data["categories"].items():
        where = f"categories.{name}"
        if not isinstance(levels, list) or not levels:
            raise ConfigError(f"`{where}` must be a list of environments, each a name or fields with `env`")
        categories[str(name)] = tuple(_level(x, f"{where}[{i}]", defaults) for i, x in enumerate(levels))
    modes = defaults.get("modes", MODES)
    if not modes or not {*modes} <= {*MODES}:
        raise ConfigError(f"`modes` (={list(modes)}) must hold some of {', '.join(MODES)}")
    name = defaults.get("name", stem)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"`name` (={name!r}) must be letters, digits, spaces and `._-`: files are named after it"
        )
    return Suite(given, name, modes, defaults.get("seed", 0), categories)


def _level(given: Any, where: str, defaults: Mapping[str, Any]) -> Level:
    given = {"env": given} if isinstance(given, str) else given
    if not isinstance(given, dict) or "env" not in given:
        raise ConfigError(f"`{where}` (={given!r}) must be the name of an environment, or fields with `env`")
    fields = {**defaults, **_check_fields(given, _LEVEL, f"{where}.")}
    rule = Success.parse(fields["success"], f"{where}.success") if fields.get("success") else None
    level = Level(**{name: fields[name] for name in _LEVEL if name in fields} | {"success": rule})
    with errors_as(ConfigError, f"`{where}`", ValueError):
        level.reports  # noqa: B018
    return level


def _check_fields(given: Mapping[Any, Any], fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name in given:
        if name not in fields:
            raise ConfigError(f"`{where}{name}` is no field of a suite{did_you_mean(str(name), fields)}")
    return {name: check(f"{where}{name}", value, *fields[name]) for name, value in given.items()}
