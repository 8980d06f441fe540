"""The filter of runs: words, and conditions on fields, such as `env.name=CartPole ppo.gamma>=0.99`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_CONDITION = re.compile(r"([\w.]+)(>=|<=|!=|=|>|<)(.*)")
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def matches(query: str, row: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """True if a run satisfies all parts of a query.

    A word must occur in the run's name, environment, algorithm or state. A condition is on a field of the
    configuration, by its name or its last part, or on a column of the table; `=` and `!=` of text ask for a
    part of it, of numbers for equality.
    """
    return all(_holds(part, row, config) for part in query.split())


def _holds(part: str, row: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    found = _CONDITION.fullmatch(part)
    if found is None:
        shown = (str(row.get(name, "")).lower() for name in ("name", "env", "algorithm", "state"))
        return any(part.lower() in word for word in shown)
    name, sign, wanted = found.groups()
    values = [row[name]] if name in row else _values(name, config)
    if sign == "!=":
        return bool(values) and not any(_equals(value, wanted) for value in values)
    if sign == "=":
        return any(_equals(value, wanted) for value in values)
    number = _number(wanted)
    numbers = [x for value in values if (x := _number(value)) is not None]
    return number is not None and any(_ORDER[sign](x, number) for x in numbers)


def _values(name: str, config: Mapping[str, Any]) -> list[Any]:
    if name in config:
        return [config[name]]
    return [value for field, value in config.items() if field.endswith(f".{name}")]


def _equals(value: Any, wanted: str) -> bool:
    number = _number(value)
    other = _number(wanted)
    if number is not None and other is not None:
        return number == other
    return wanted.lower() in str(value).lower()


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
