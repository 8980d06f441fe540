"""A dimension of a search: a field that varies, and its values, checked against its declaration."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, words
from jaxrl.config.errors import did_you_mean
from jaxrl.config.fields import Field, describe, name_alone, shorten, with_arguments

_FORMS = ("choice", "int", "uniform", "log")
_LARGEST = 1e300  # a bound in magnitude
_POINTS = 3  # of a continuous dimension in a grid
# Fields whose values are names with arguments, which may all vary.
_CALLS = ("env.name", "env.wrappers", "evaluate.unseen")


@dataclass(frozen=True)
class Dimension:
    """The values of one field, or of one argument of a name.

    Attributes:
      name: as in the space: `ppo.gamma`, `env.name(length)`, `env.wrappers(sticky_actions.probability)`.
      form: "choice", "int", "uniform" or "log".
      choices: of a "choice", else empty.
      low, high: of the others; both are included.
      is_integer: True if values are integers.
      points: the number of values that a grid takes from a range.
    """

    name: str
    form: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    is_integer: bool = False
    points: int = _POINTS

    @property
    def field(self) -> str:
        """The field that it changes."""
        return self.name.partition("(")[0]

    @property
    def argument(self) -> str:
        """The argument of the name in that field; "" if the whole field varies."""
        return self.name.partition("(")[2].removesuffix(")")

    def at(self, unit: float) -> Any:
        """The value at `unit` in [0, 1], so that a uniform sample there is one of this dimension."""
        if self.form == "choice":
            return self.choices[min(int(unit * len(self.choices)), len(self.choices) - 1)]
        # Each integer has the same share of the interval.
        low, high = (self.low - 0.5, self.high + 0.5) if self.is_integer else (self.low, self.high)
        if self.form == "log":
            # Half an integer below 1 would be most of a logarithmic range.
            low = max(low, 0.75 * self.low) if self.is_integer else low
            value = math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
        else:
            value = low + unit * (high - low)
        value = min(max(round(value) if self.is_integer else value, self.low), self.high)
        return int(value) if self.is_integer else float(value)

    def coordinate(self, value: Any) -> float:
        """The place of a value in [0, 1]: on the scale of a range, or by its position in the choices."""
        if self.form == "choice":
            return self.choices.index(as_choice(value)) / max(len(self.choices) - 1, 1)
        scale = math.log if self.form == "log" else float
        return (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))

    def grid(self) -> list[Any]:
        """All choices, or evenly spaced values of the range, its bounds among them."""
        if self.form == "choice":
            return list(self.choices)
        if self.form == "int" and self.high - self.low < self.points:
            return list(range(int(self.low), int(self.high) + 1))
        scale, back = (math.log, math.exp) if self.form == "log" else (float, float)
        low = scale(self.low)
        high = scale(self.high)
        raw = [back(low + i / (self.points - 1) * (high - low)) for i in range(self.points)]
        values = [self.low, *raw[1:-1], self.high]  # exactly the bounds, without the rounding of exp(log(x))
        return list(dict.fromkeys(round(x) if self.is_integer else x for x in values))

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Every choice, or the bounds."""
        return self.choices or tuple(dict.fromkeys((self.at(0.0), self.at(1.0))))


def as_choice(value: Any) -> Any:
    """A choice as it is stored: lists, as JSON reads them, become tuples."""
    return tuple(as_choice(x) for x in value) if isinstance(value, (list, tuple)) else value


def label(value: Any) -> str:
    """A value in short, for people."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(plain(value))


def plain(value: Any) -> Any:
    """A value as JSON has it: tuples become lists."""
    return [plain(x) for x in value] if isinstance(value, (list, tuple)) else value


def read_dimension(name: str, given: Any, declared: Mapping[str, Field], section: str) -> Dimension:
    """Checks the values of a field: its choices, or the form and bounds of a range.

    Raises:
      ConfigError: an unknown field, a wrong type or rule, an empty or reversed range.
    """
    field = _field(name, declared, section)
    where = f"`{name}` of the space"
    if isinstance(given, list):
        given = {"choice": given}
    if not isinstance(given, Mapping) or len(set(given) & set(_FORMS)) != 1:
        forms = "{choice: [...]}, [...], {int: [LOW, HIGH]}, {uniform: [LOW, HIGH]}, {log: [LOW, HIGH]}"
        raise ConfigError(f"{where} (={shorten(given)}) must be one of {forms}")
    form = next(key for key in given if key in _FORMS)
    for key in given:
        if key not in (form, "points"):
            raise ConfigError(
                f"{where} has the unknown key `{key}`{did_you_mean(str(key), ('points', *_FORMS))}"
            )
    points = given.get("points", _POINTS)
    if isinstance(points, bool) or not isinstance(points, int) or points < 2:
        raise ConfigError(f"{where}: `points` (={shorten(points)}) must be an integer of at least 2")
    values = given[form]
    if not isinstance(values, (list, tuple)) or not values:
        raise ConfigError(f"{where}: `{form}` (={shorten(values)}) must be a list that is not empty")
    if form == "choice":
        choices = tuple(as_choice(_check_value(name, field, _number(value))) for value in values)
        if len(set(choices)) != len(choices):
            raise ConfigError(f"{where}: `choice` (={shorten(values)}) holds a value twice")
        return Dimension(name, form, choices=choices, points=points)
    return _range(name, field, form, [_number(value) for value in values], points)


def _range(name: str, field: Field | None, form: str, bounds: list[Any], points: int) -> Dimension:
    where = f"`{name}` of the space: `{form}` (={shorten(bounds)})"
    if len(bounds) != 2 or not all(type(x) in (int, float) and abs(x) < _LARGEST for x in bounds):
        raise ConfigError(f"{where} must be two finite numbers, [LOW, HIGH]")
    kinds = {field.kind, *get_args(field.kind)} if field else {int, float}
    optional = field is not None and type(None) in get_args(field.kind)
    if field and not (kinds & {int, float} and (optional or field.kind in (int, float))):
        raise ConfigError(f"{where}: the field must be {describe(field.kind)}, so give a choice: [...]")
    low, high = bounds
    if low >= high:
        raise ConfigError(f"{where} must be a lower and then a higher bound")
    if form == "log" and low <= 0:
        raise ConfigError(f"{where} must be above 0, as a logarithm requires")
    is_integer = form == "int" or (field is not None and float not in kinds)
    if is_integer and form == "uniform":
        raise ConfigError(f"{where}: the field must be an integer, so write `int` instead")
    if is_integer and not all(float(x).is_integer() for x in bounds):
        raise ConfigError(f"{where} must be two integers")
    for bound in bounds:
        _check_value(name, field, int(bound) if is_integer else float(bound))
    return Dimension(name, form, low=low, high=high, is_integer=is_integer, points=points)


def _field(name: str, declared: Mapping[str, Field], section: str) -> Field | None:
    """The field of a dimension; None if it is an argument, which has no declaration."""
    field, parenthesis, argument = name.partition("(")
    if field == "seed":
        raise ConfigError("`seed` of the space: trials share one, and the best is verified with fresh seeds")
    if field not in declared:
        inner = [other for other in declared if other.startswith(f"{field}.")]
        if inner:
            raise ConfigError(f"`{name}` of the space is a section; name its fields, such as `{inner[0]}`")
        hint = words.unknown_field_hint(field, declared, section)
        raise ConfigError(f"`{name}` of the space is no field{hint}")
    if not parenthesis:
        return declared[field]
    form = r"\w+\.\w+\)" if field == "env.wrappers" else r"\w+\)"
    if field not in _CALLS or not re.fullmatch(form, argument):
        raise ConfigError(
            f"`{name}` of the space must be a field, env.name(ARGUMENT) or env.wrappers(WRAPPER.ARGUMENT)"
        )
    return None


def _check_value(name: str, field: Field | None, value: Any) -> Any:
    if field is None:
        if not _is_literal(value):
            raise ConfigError(
                f"the space: `{name}` (={shorten(value)}) must be text, a number, true, false, none or a list"
            )
        return value
    try:
        return field.check(value)
    except ConfigError as error:
        raise ConfigError(f"the space: {error}") from error


def _is_literal(value: Any) -> bool:
    """True of what a name can have as an argument."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _number(value: Any) -> Any:
    """A number like 1e-5, which YAML 1.1 reads as text since it has no dot, as a float."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
        return float(value)
    return value


def with_argument(dimension: Dimension, config: ConfigDict, value: Any) -> Any:
    """The field's value with one argument replaced.

    Raises:
      ConfigError: no name in the configuration has the argument.
    """
    if dimension.field != "env.wrappers":
        section, _, key = dimension.field.partition(".")
        return with_arguments(dimension.field, config[section][key], **{dimension.argument: value})
    wrapper, _, argument = dimension.argument.partition(".")
    names = [name_alone("env.wrappers", text) for text in config.env.wrappers]
    if wrapper not in names:
        raise ConfigError(
            f"`{dimension.name}` of the space: `env.wrappers` has no {wrapper} "
            f"(it has: {', '.join(names) or 'none'})"
        )
    return tuple(
        with_arguments("env.wrappers", text, **({argument: value} if name == wrapper else {}))
        for name, text in zip(names, config.env.wrappers, strict=True)
    )
