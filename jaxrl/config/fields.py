"""Types and ranges of configuration fields: one checker.

A field is declared once, as an annotation such as `gamma: Annotated[float, between(0, 1)]`;
`check` reads the annotation.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
from collections.abc import Callable
from typing import Annotated, Any, Union, get_args, get_origin

from jaxrl.config.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a value must satisfy; `text` completes "the field must ..."."""

    text: str
    holds: Callable[[Any], bool]


def at_least(low: float) -> Rule:
    return Rule(f"be at least {low}", lambda x: x >= low)


def above(low: float) -> Rule:
    return Rule(f"be above {low}", lambda x: x > low)


def between(low: float, high: float) -> Rule:
    """The closed interval `[low, high]`."""
    return Rule(f"lie between {low} and {high}", lambda x: low <= x <= high)


def one_of(*names: str) -> Rule:
    return Rule(f"be one of {', '.join(names)}", lambda x: x in names)


def each(rule: Rule) -> Rule:
    """The rule for every element of a tuple."""
    return Rule(f"hold elements each of which must {rule.text}", lambda xs: all(rule.holds(x) for x in xs))


def distinct() -> Rule:
    """No element of a tuple comes twice."""
    return Rule("hold no element twice", lambda xs: len(set(xs)) == len(xs))


def check(name: str, value: Any, annotation: Any) -> Any:
    """Returns `value` as the annotated type.

    Widening is silent (an integer for a float, a list for a tuple, numpy scalars for Python's);
    nothing else is converted: True is no integer and "1" is no number.

    Args:
      name: the dotted name of the field, for the error.
      value: what the user gave.
      annotation: bool, int, float, str, `tuple[T, ...]` or `T | None`, optionally `Annotated` with `Rule`s.

    Raises:
      ConfigError: the type is wrong, the number is not finite, or a rule does not hold.
    """
    annotated = get_origin(annotation) is Annotated
    kind, *rules = get_args(annotation) if annotated else (annotation,)
    converted = _convert(value, kind)
    if converted is _WRONG:
        raise ConfigError(f"`{name}` (={value!r}) must be {describe(kind)}")
    for rule in rules:
        if converted is not None and not rule.holds(converted):
            raise ConfigError(f"`{name}` (={value!r}) must {rule.text}")
    return converted


_WRONG: Any = object()

_WORDS = {bool: "true or false", int: "an integer", float: "a finite number", str: "a string"}


def describe(kind: Any) -> str:
    """Returns the type in words, with its article."""
    if get_origin(kind) is tuple:
        return f"a tuple in which each element is {describe(get_args(kind)[0])}"
    if _is_optional(kind):
        return f"{describe(_inner(kind))} or none"
    return _WORDS[kind]


def _convert(value: Any, kind: Any) -> Any:
    if _is_optional(kind):
        return None if value is None else _convert(value, _inner(kind))
    if get_origin(kind) is tuple:
        if not isinstance(value, (tuple, list)):
            return _WRONG
        elements = tuple(_convert(x, get_args(kind)[0]) for x in value)
        return _WRONG if any(x is _WRONG for x in elements) else elements
    if kind in (bool, str):
        return value if isinstance(value, kind) else _WRONG
    if isinstance(value, bool):
        return _WRONG
    if kind is int:
        return int(value) if isinstance(value, numbers.Integral) else _WRONG
    return _finite(value) if isinstance(value, numbers.Real) else _WRONG


def _finite(value: Any) -> Any:
    try:
        number = float(value)
    except OverflowError:
        return _WRONG
    return number if math.isfinite(number) else _WRONG


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def _inner(kind: Any) -> Any:
    return next(k for k in get_args(kind) if k is not type(None))
