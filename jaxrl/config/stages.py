"""Stages of a curriculum, from a file of YAML or as JSON in the configuration: read and checked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config.curriculum import MOST_STAGES, STAGES, CurriculumConfig
from jaxrl.config.data_files import parse_json, require_yaml
from jaxrl.config.errors import ConfigError, did_you_mean, errors_as
from jaxrl.config.fields import LARGEST_INT32, Rule, at_least, between, bounds, check, name_alone, shorten
from jaxrl.config.files import shipped_file, shipped_names

_LARGEST_WINDOW = 100_000
# Of each field: its type and rules. A file sets them for all its stages, or for one.
_FIELDS: dict[str, tuple[Any, ...]] = {
    "name": (str, Rule("hold 1 to 100 characters", lambda x: 1 <= len(x) <= 100)),
    "success": (float | None, between(0, 1)),
    "return": (float | None,),
    "collisions": (float | None, at_least(0)),
    "cost": (str,),
    "window": (int, *bounds(1, _LARGEST_WINDOW)),
    "least_steps": (int, *bounds(0, LARGEST_INT32)),
    "most_steps": (int | None, *bounds(1, LARGEST_INT32)),
    "earlier": (float, between(0, 1)),
    "back": (float | None, between(0, 1)),
    "epsilon": (float | None, between(0, 1)),
}
_OF_ONE_STAGE = ("name", "task", "weights")
# Of a file: the environment, with the arguments that its stages need.
_ENVIRONMENT = "environment"
_AUTO = "auto"  # as a file's name: the shipped stages of the environment
_LARGEST_WEIGHT = 1e6

# A number, its range, or names of a group's members.
TaskValue = float | tuple[float, float] | tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage; it ends once its window is full and every threshold that it names is reached.

    Attributes:
      task: by field of the environment's tasks: a number, a range, or names; fields that it leaves out are
        as in the default task.
      success: the least mean success over the window, 0 to 1; None: no condition.
      returns: the least mean return; None: no condition.
      collisions: the most that `cost` comes to per episode; None allows any.
      cost: the quantity that the environment reports and `collisions` bounds; "" is nothing.
      window: episodes that decide.
      least_steps, most_steps: environment steps after which the stage may end, and ends regardless of the
        window; None is never.
      earlier: share of the episodes that are of earlier stages.
      back: a mean success below which training returns to the stage before; None never does.
      epsilon: exploration rate for a custom loop; None takes the default of the stage.
      weights: of the losses of `env.tasks`, by name; 1 if left out.
    """

    name: str
    task: Mapping[str, TaskValue]
    success: float | None = None
    returns: float | None = None
    collisions: float | None = None
    cost: str = ""
    window: int = 200
    least_steps: int = 200_000
    most_steps: int | None = None
    earlier: float = 0.2
    back: float | None = None
    epsilon: float | None = None
    weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def has_threshold(self) -> bool:
        """True if the window can end it."""
        return any(x is not None for x in (self.success, self.returns, self.collisions))


def read_file(name: str, field: str = "curriculum.file") -> tuple[str, ...]:
    """Reads a file of stages, or a shipped one; returns each as JSON, with the settings for all of them.

    Raises ConfigError with `field`, where `name` was given, and the stage and field that are wrong.
    """
    given = f"`{field}` (={shorten(name)})"
    data = _content(name, given)
    with errors_as(ConfigError, given, ConfigError):
        common = {key: value for key, value in data.items() if key not in ("stages", _ENVIRONMENT)}
        _check_fields(common, "", _FIELDS.keys() - {*_OF_ONE_STAGE})
        whole = [{**common, **_mapping(stage, i)} for i, stage in enumerate(data["stages"])]
        _check_stages(whole)
        return tuple(json.dumps(stage) for stage in whole)


def environment_for(curriculum: CurriculumConfig, environment: str) -> str:
    """The environment with the arguments that a file of stages needs, if it is given without any."""
    if not curriculum.file:
        return environment
    name = _file_of(curriculum, environment)
    needed = _content(name, f"`curriculum.file` (={shorten(name)})").get(_ENVIRONMENT, "")
    return needed if needed and name_alone(_ENVIRONMENT, needed) == environment else environment


def _content(name: str, given: str) -> Mapping[str, Any]:
    """A file's content, in which only the kinds of values are checked; `given` is for messages."""
    data = require_yaml(given, shipped_file(name, "curricula"), name, lambda: shipped_names("curricula"))
    if not isinstance(data, dict) or not isinstance(data.get("stages"), list) or not data["stages"]:
        raise ConfigError(f"{given} must hold `stages`, a list of them")
    environment = data.get(_ENVIRONMENT, "")
    if not isinstance(environment, str):
        raise ConfigError(f"{given}: `{_ENVIRONMENT}` (={shorten(environment)}) must be a name")
    return data


def parse(stages: Sequence[str], field: str = "curriculum.stages") -> tuple[Stage, ...]:
    """The stages of JSON texts, as `read_file` returns them; ConfigError names stage and field."""
    found = []
    with errors_as(ConfigError, f"`{field}`", ConfigError):
        for i, text in enumerate(stages):
            try:
                found.append(_mapping(parse_json(text), i))
            except ConfigError:
                raise
            except ValueError as error:
                raise ConfigError(f"stage {i + 1} must be JSON: {error}") from error
        return _check_stages(found)


def resolve_stages(
    curriculum: CurriculumConfig, environment: str, steps_per_iteration: int
) -> CurriculumConfig:
    """The section with the stages alone, in place of a file's name, "auto" or a list of difficulties.

    Raises ConfigError if its parts are wrong or exclude each other.
    """
    sources = {name: getattr(curriculum, name) for name in ("file", "difficulties", "stages")}
    given = [name for name, value in sources.items() if value]
    if given and curriculum.name != STAGES:
        given.append("name")
    if len(given) > 1 and given != ["stages", "name"]:
        first, other = given[:2]
        value = shorten(sources[first])
        rule = f"must be empty where `curriculum.{other}` is given"
        raise ConfigError(f"`curriculum.{first}` (={value}) {rule}")
    stages = curriculum.stages
    if curriculum.file:
        stages = read_file(_file_of(curriculum, environment))
    if curriculum.difficulties:
        stages = _plain_list(curriculum, steps_per_iteration)
    stages = stages[: curriculum.num_stages or None]
    most = max(1, len(parse(stages)))
    if curriculum.name == STAGES and curriculum.start_stage > most:
        raise ConfigError(
            f"`curriculum.start_stage` (={curriculum.start_stage}) must be at most {most}, the number of "
            "stages"
        )
    return CurriculumConfig(name=curriculum.name, stages=stages, start_stage=curriculum.start_stage)


def _file_of(curriculum: CurriculumConfig, environment: str) -> str:
    if curriculum.file != _AUTO:
        return curriculum.file
    name = environment.partition("(")[0].rpartition(":")[2].lower()
    if name not in (names := shipped_names("curricula")):
        raise ConfigError(
            f"`curriculum.file` (='auto'): no stages are shipped for {environment}; "
            f"there are {', '.join(names)}"
        )
    return name


def _plain_list(curriculum: CurriculumConfig, steps_per_iteration: int) -> tuple[str, ...]:
    """A stage as JSON for each of `curriculum.difficulties`, as long as all others."""
    steps = curriculum.iterations * steps_per_iteration
    if steps > LARGEST_INT32:
        raise ConfigError(
            f"`curriculum.iterations` (={curriculum.iterations}) of {steps_per_iteration} steps each must be "
            f"at most {LARGEST_INT32} steps"
        )
    ends = {"least_steps": steps, "most_steps": steps, "earlier": 0.0}
    named = ((f"{curriculum.parameter} {x:g}", {curriculum.parameter: x}) for x in curriculum.difficulties)
    return tuple(json.dumps({"name": name, "task": task, **ends}) for name, task in named)


def _check_stages(given: Sequence[Mapping[Any, Any]]) -> tuple[Stage, ...]:
    if len(given) > MOST_STAGES:
        raise ConfigError(f"`stages` must be at most {MOST_STAGES}, not {len(given)}")
    stages = tuple(_stage(stage, i) for i, stage in enumerate(given))
    for i, stage in enumerate(stages[:-1]):
        if not stage.has_threshold and stage.most_steps is None:
            raise ConfigError(f"{_label(i)}needs an end: `success`, `return`, `collisions` or `most_steps`")
    costs = sorted({stage.cost for stage in stages if stage.cost})
    if len(costs) > 1:
        raise ConfigError(f"`cost` must be the same in all stages, not {' and '.join(costs)}")
    return stages


def _stage(given: Mapping[Any, Any], i: int) -> Stage:
    where = _label(i)
    rest = dict(given)
    task, weights = (rest.pop(name, {}) for name in ("task", "weights"))
    if not isinstance(task, Mapping):
        raise ConfigError(f"{where}`task` (={shorten(task)}) must hold fields of the environment's tasks")
    if not isinstance(weights, Mapping):
        raise ConfigError(f"{where}`weights` (={shorten(weights)}) must hold numbers by name of a task")
    fields = {"name": f"stage {i + 1}"} | _check_fields(rest, where, _FIELDS.keys())
    fields["returns"] = fields.pop("return", None)
    fields["task"] = {str(k): _task_value(f"{where}`task.{k}`", x) for k, x in task.items()}
    with errors_as(ConfigError, where.removesuffix(": "), ConfigError):
        limits = (float, between(0, _LARGEST_WEIGHT))
        fields["weights"] = {str(k): check(f"weights.{k}", x, *limits) for k, x in weights.items()}
    stage = Stage(**fields)
    if stage.collisions is not None and not stage.cost:
        raise ConfigError(f"{where}`collisions` needs `cost`, the report of the environment that counts them")
    if stage.most_steps is not None and stage.most_steps < stage.least_steps:
        raise ConfigError(
            f"{where}`most_steps` (={stage.most_steps}) must be at least `least_steps` (={stage.least_steps})"
        )
    return stage


def _task_value(label: str, given: Any) -> TaskValue:
    """A number, two as a range, or names."""
    if isinstance(given, str):
        return (given,)
    if isinstance(given, list) and given and all(isinstance(x, str) for x in given):
        return tuple(given)
    try:
        if not isinstance(given, list):
            return check("x", given, float)
        low, high = (check("x", x, float) for x in given)
    except ValueError as error:  # also of a list of another length
        rule = "must be a number, a range [low, high] or names"
        raise ConfigError(f"{label} (={shorten(given)}) {rule}") from error
    if low > high:
        raise ConfigError(f"{label} (={shorten(given)}) must be a range whose low end comes first")
    return low, high


def _check_fields(given: Mapping[Any, Any], where: str, known: Any) -> dict[str, Any]:
    for name in given:
        if name not in known:
            raise ConfigError(f"{where}`{name}` is no field of a stage{did_you_mean(str(name), known)}")
    with errors_as(ConfigError, where.removesuffix(": "), ConfigError):
        return {name: check(name, value, *_FIELDS[name]) for name, value in given.items()}


def _mapping(given: Any, i: int) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"stage {i + 1} (={shorten(given)}) must hold fields, such as `task` and `success`")
    return given


def _label(i: int) -> str:
    return f"stage {i + 1}: "
