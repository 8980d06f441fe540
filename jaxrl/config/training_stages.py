"""Stages of training: budgets and changed fields, one after the other, from a config or a file of YAML."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config.configuration import Config
from jaxrl.config.data_files import parse_json, require_yaml
from jaxrl.config.declarations import declared_fields, flatten
from jaxrl.config.errors import ConfigError, did_you_mean, errors_as
from jaxrl.config.fields import LARGEST_COUNT, Field, Rule, above, bounds, check, shorten
from jaxrl.config.overrides import read_value

MOST_TRAINING_STAGES = 1_000
_ENDINGS = (".yaml", ".yml", ".json")
_NAME = Rule("hold 1 to 100 characters", lambda x: 1 <= len(x) <= 100)
_BUDGETS: dict[str, tuple[Any, ...]] = {
    "iterations": (int, *bounds(1, LARGEST_COUNT)),
    "steps": (int, *bounds(1, LARGEST_COUNT)),
    "seconds": (float, above(0)),
}
_RETURN = "return"
_FRESH = "fresh"
# Beside fields of the algorithm's section and of the curriculum that a resumed run may change.
_CHANGEABLE = (
    "env.name",
    "env.wrappers",
    "env.success",
    "network.frozen",
    "normalize.clip_observations",
    "normalize.clip_rewards",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStage:
    """A part of a run with a budget of its own and fields that change where it begins.

    Attributes:
      iterations: of its budget; None: another budget ends it.
      seconds: of training; None as well.
      target_return: mean return of an evaluation in it that ends it before its budget; None: none does.
      fresh: patterns of names of parameters that are initialised anew when it begins.
      changes: values by dotted name; what it leaves out stays as in the stage before.
    """

    name: str
    iterations: int | None = None
    seconds: float | None = None
    target_return: float | None = None
    fresh: tuple[str, ...] = ()
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """True if only `stop` ends it."""
        return self.iterations is None and self.seconds is None and self.target_return is None


def read(given: Sequence[str]) -> tuple[str, ...]:
    """Each of the stages as JSON; ConfigError if the file cannot be read or a stage holds no fields.

    They are given as JSON, as words such as "iterations=1000 learning_rate=1e-3", or as one file, a list.
    """
    if len(given) == 1 and given[0].endswith(_ENDINGS):
        named = f"`stages` (={shorten(given[0])})"
        data = require_yaml(named, given[0])
        if isinstance(data, dict) and data.keys() == {"stages"}:
            data = data["stages"]
        if not isinstance(data, list) or not data or not all(isinstance(x, Mapping) for x in data):
            raise ConfigError(f"{named} must hold a list of stages, each with fields such as `iterations`")
        return tuple(map(json.dumps, data))
    if len(given) > MOST_TRAINING_STAGES:
        raise ConfigError(f"`stages` must hold at most {MOST_TRAINING_STAGES} elements, not {len(given)}")
    return tuple(json.dumps(_fields(text, i)) for i, text in enumerate(given))


def parse(config: Config) -> tuple[TrainingStage, ...]:
    """The stages of a configuration, whose texts `read` has returned; ConfigError names stage and field."""
    found = []
    for i, text in enumerate(config.stages):
        with errors_as(ConfigError, f"`stages`: stage {i + 1}", ConfigError):
            found.append(_stage(_fields(text, i), i, config))
    for i, stage in enumerate(found[:-1]):
        if stage.is_open:
            raise in_stage(i, "needs an end: `iterations`, `steps`, `seconds` or `return`")
    counted = sum(stage.iterations or 0 for stage in found[:-1])
    if found and found[-1].is_open and config.stop.steps and counted >= config.num_iterations:
        why = f"it never begins: `stop.steps` (={config.stop.steps}) ends the run before"
        raise in_stage(len(found) - 1, why)
    return tuple(found)


def in_stage(i: int, error: object) -> ConfigError:
    """The error of stage `i`, from 0 on."""
    return ConfigError(f"`stages`: stage {i + 1}: {error}")


def _fields(text: str, i: int) -> Mapping[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            found: Mapping[str, Any] = parse_json(text)
        except ValueError as error:
            raise in_stage(i, f"(={shorten(text)}) must be JSON: {error}") from error
        return found
    pairs = [word.partition("=") for word in text.split()]
    if not pairs or not all(sign for _, sign, _ in pairs):
        form = "must be fields, such as 'iterations=1000 learning_rate=1e-3', or JSON"
        raise in_stage(i, f"(={shorten(text)}) {form}")
    return {name: value for name, _, value in pairs}


def _stage(given: Mapping[str, Any], i: int, config: Config) -> TrainingStage:
    rest = {str(key): value for key, value in given.items()}
    name = check("name", str(rest.pop("name", f"stage {i + 1}")), str, _NAME)
    budgets = {
        key: check(key, read_value(rest.pop(key), rules[0]), *rules)
        for key, rules in _BUDGETS.items()
        if key in rest
    }
    if len(budgets) > 1:
        raise ConfigError(f"{' and '.join(f'`{key}`' for key in budgets)} must not both be its budget")
    iterations = budgets.get("iterations")
    if "steps" in budgets:
        iterations = math.ceil(budgets["steps"] / config.steps_per_iteration)
    target = rest.pop(_RETURN, None)
    if target is not None:
        target = check(_RETURN, read_value(target, float), float)
        if not config.evaluate.every_steps:
            raise ConfigError(f"`{_RETURN}` (={target:g}) needs evaluations: `evaluate.every_steps` (=0)")
    fresh = _fresh(rest.pop(_FRESH, ()), i)
    changes = {}
    for key, value in flatten(rest).items():
        field = _field(key, config)
        if field.name == "env.name" and config.env.tasks:
            raise ConfigError("`env.name` stays the same with `env.tasks`")
        changes[field.name] = field.check(read_value(value, field.kind))
    rate, schedule = (f"{config.section}.{each}" for each in ("learning_rate", "schedule"))
    if rate in changes and schedule in declared_fields(config.algorithm):
        changes.setdefault(schedule, "constant")  # so that the rate is exactly this one
    return TrainingStage(
        name=name,
        iterations=iterations,
        seconds=budgets.get("seconds"),
        target_return=target,
        fresh=fresh,
        changes=changes,
    )


def _fresh(given: Any, i: int) -> tuple[str, ...]:
    patterns = (given,) if isinstance(given, str) else given
    if not isinstance(patterns, list | tuple) or not all(isinstance(x, str) and x for x in patterns):
        raise ConfigError(f"`{_FRESH}` (={shorten(given)}) must be patterns of names of parameters")
    if patterns and i == 0:
        raise ConfigError(f"`{_FRESH}` (={shorten(given)}) is for later stages: in the first all are new")
    return tuple(patterns)


def _field(name: str, config: Config) -> Field:
    """The field of that name, or of that name in the section of the algorithm."""
    declared = declared_fields(config.algorithm)
    field = declared.get(name) or declared.get(f"{config.section}.{name}")
    known = [
        each
        for each in declared.values()
        if (each.section == config.section and not each.fixed)
        or each.section == "curriculum"
        or each.name in _CHANGEABLE
    ]
    if field is None:
        names = [field.name for field in known]
        own = [each.rpartition(".")[2] for each in names if each.startswith(f"{config.section}.")]
        hint = did_you_mean(name, [*names, *own, *_BUDGETS, _RETURN, _FRESH])
        raise ConfigError(f"`{name}` is no field of the configuration{hint}")
    if field not in known:
        raise ConfigError(
            f"`{field.name}` stays the same over a whole run; stages may change {', '.join(_CHANGEABLE)}, "
            f"the curriculum and what is not fixed of the section `{config.section}`"
        )
    return field
