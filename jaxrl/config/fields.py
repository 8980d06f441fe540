"""Declarations of configuration fields, and the one checker of types and ranges.

A field is declared once, in the dataclass of its section:
`gamma: float = field(0.99, between(0, 1), help="discount factor")`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs.names import format_call, parse_call

T = TypeVar("T")

# What arrays of integers hold: programs compute in 32 bits.
LARGEST_INT32 = 2**31 - 1
# Steps are counted by the host, and written to files that other languages read as floating-point numbers.
LARGEST_COUNT = 2**53
# What float32 holds, from the smallest number that is not rounded to 0.
_FLOAT32 = (1.1754944e-38, 3.4028235e38)
_LONGEST_SHOWN = 80  # characters of a value in an error


@dataclasses.dataclass(frozen=True)
class Rule:
    """The condition that a value must satisfy; `text` completes "the field must ...", `choices` are few."""

    text: str
    holds: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


def at_least(low: float) -> Rule:
    return Rule(f"be at least {low}", lambda x: x >= low)


def at_most(high: float) -> Rule:
    return Rule(f"be at most {high}", lambda x: x <= high)


def bounds(low: float, high: float) -> tuple[Rule, Rule]:
    """At least `low` and at most `high`: an error names the one that is broken."""
    return at_least(low), at_most(high)


def above(low: float) -> Rule:
    return Rule(f"be above {low}", lambda x: x > low)


def between(low: float, high: float) -> Rule:
    """The closed interval `[low, high]`."""
    return Rule(f"lie between {low} and {high}", lambda x: low <= x <= high)


def one_of(*names: str) -> Rule:
    return Rule(f"be one of {', '.join(names)}", lambda x: x in names, names)


def matches(pattern: str, text: str) -> Rule:
    """A regular expression for the whole value; `text` describes it in words."""
    return Rule(text, lambda x: re.fullmatch(pattern, x) is not None)


def not_empty() -> Rule:
    return Rule("hold at least 1 element", lambda xs: len(xs) > 0)


def at_most_elements(count: int) -> Rule:
    return Rule(f"hold at most {count} elements", lambda xs: len(xs) <= count)


def each(rule: Rule) -> Rule:
    return Rule(f"hold elements that each must {rule.text}", lambda xs: all(rule.holds(x) for x in xs))


def distinct() -> Rule:
    return Rule("hold no element twice", lambda xs: len(set(xs)) == len(xs))


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of the configuration, as it was declared.

    Attributes:
      name: the dotted name that users write, such as "ppo.gamma".
      attribute: its name in the dataclass of its section.
      kind: bool, int, float, str, `tuple[T, ...]` or `T | None`.
      rules: the conditions on a value; None is exempt.
      help: its meaning, without a capital letter and a full stop.
      fixed: True if a resumed run must keep its value, because the stored state depends on it.
      names_module: True if its value may be `module:attribute`, which is imported.
    """

    name: str
    attribute: str
    kind: Any
    default: Any
    rules: tuple[Rule, ...]
    help: str
    fixed: bool
    names_module: bool

    @property
    def section(self) -> str:
        """The name of its section, "" if it has none."""
        return self.name.rpartition(".")[0]

    def check(self, value: Any) -> Any:
        """Returns `value` as the declared type; raises ConfigError as `fields.check` does."""
        return check(self.name, value, self.kind, *self.rules)


def field(
    default: T, *rules: Rule, help: str, fixed: bool = False, key: str = "", names_module: bool = False
) -> T:
    """Declares a field of a section's dataclass.

    Args:
      default: of the annotated type.
      rules, help, fixed: see `Field`.
      key: the name that users write, if Python reserves that word.
      names_module: of a string, which may be `module:attribute`, or several of them as `key=module:attribute`
        with commas between. A module that only a stored run names is not imported without --trust.
    """
    declared = {"rules": rules, "help": help, "fixed": fixed, "key": key, "names_module": names_module}
    # Typed as the value, like dataclasses.field, so that the annotation is checked against the default.
    return dataclasses.field(default=default, metadata=declared)


def with_default(section: type, name: str, default: T, help: str = "", fixed: bool = False) -> T:
    """Declares a field of `section` again in another one, with another default, of the annotated type.

    It has the same rules, and the same meaning without `help`; with `fixed` a resumed run may not change it.
    """
    (before,) = (f.metadata for f in dataclasses.fields(section) if f.name == name)
    changed = {"help": help or before["help"], "fixed": fixed or before["fixed"]}
    return dataclasses.field(default=default, metadata={**before, **changed})


def declarations(cls: type, prefix: str = "") -> Iterator[Field]:
    """Yields the fields that a dataclass declares with `field`, in order; others are left out."""
    kinds = get_type_hints(cls)
    for f in dataclasses.fields(cls):
        if f.metadata:
            name = f"{prefix}{f.metadata['key'] or f.name}"
            rest = {key: f.metadata[key] for key in ("rules", "help", "fixed", "names_module")}
            yield Field(name, f.name, kinds[f.name], f.default, **rest)


def check(name: str, value: Any, kind: Any, *rules: Rule) -> Any:
    """Returns `value` as the type `kind`.

    Widening is silent (an integer for a float, a list for a tuple, numpy scalars for Python's), and in a
    tuple of strings a dict becomes its JSON; nothing else is converted: True is no integer and "1" is no
    number.

    Raises ConfigError with the dotted `name` if the type is wrong, a number is not finite, or a rule does not
    hold. `kind` and `rules` are as of `Field`.
    """
    converted = _convert(value, kind)
    if converted is _WRONG:
        raise ConfigError(f"`{name}` (={shorten(value)}) must be {describe(kind)}")
    if isinstance(converted, float) and converted and not _FLOAT32[0] <= abs(converted) <= _FLOAT32[1]:
        low, high = (f"{x:.0e}" for x in _FLOAT32)
        raise ConfigError(
            f"`{name}` (={shorten(value)}) must be 0 or between {low} and {high}, as float32 holds"
        )
    if isinstance(converted, int) and abs(converted) > LARGEST_COUNT:
        raise ConfigError(f"`{name}` (={shorten(value)}) must be at most {LARGEST_COUNT} in magnitude")
    for rule in rules:
        if converted is not None and not rule.holds(converted):
            raise ConfigError(f"`{name}` (={shorten(value)}) must {rule.text}")
    return converted


def shorten(value: Any) -> str:
    """The value for an error, cut off if it is very long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write an integer of thousands of digits.
        return f"{type(value).__name__} of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def require_divides(name: str, divisor: int, count: int, described: str) -> None:
    """Raises ConfigError unless the field `name`, the `divisor`, divides the `count` that is described."""
    if count == 0 or count % divisor:
        raise ConfigError(f"`{name}` (={divisor}) must divide {described}")


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
    if hasattr(value, "item") and not getattr(value, "shape", None):
        value = value.item()  # of numpy or jax
    if _is_optional(kind):
        return None if value is None else _convert(value, _inner(kind))
    if get_origin(kind) is tuple:
        if not isinstance(value, (tuple, list)):
            return _WRONG
        element = get_args(kind)[0]
        elements = tuple(_convert(_as_text(x) if element is str else x, element) for x in value)
        return _WRONG if any(x is _WRONG for x in elements) else elements
    if kind in (bool, str):
        return value if isinstance(value, kind) else _WRONG
    if isinstance(value, bool):
        return _WRONG
    if kind is int:
        return int(value) if isinstance(value, numbers.Integral) else _WRONG
    try:
        number = float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        return _WRONG
    return number if math.isfinite(number) else _WRONG


def _as_text(value: Any) -> Any:
    """The JSON of a dict, such as a stage in a config file; anything else as it is."""
    if not isinstance(value, Mapping):
        return value
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _WRONG


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def _inner(kind: Any) -> Any:
    return next(k for k in get_args(kind) if k is not type(None))


def name_alone(field: str, text: str) -> str:
    """The name in a value such as `suite:Name(argument=value)`; raises ConfigError if it is none."""
    return _parse_call(field, text)[0]


def with_arguments(field: str, text: str, **changed: Any) -> str:
    """A value of `field`, with some arguments added or replaced; raises ConfigError if it is no name."""
    name, arguments = _parse_call(field, text)
    return format_call(name, arguments | changed)


def _parse_call(field: str, text: str) -> tuple[str, dict[str, Any]]:
    with errors_as(ConfigError, f"`{field}` (={text!r})", ValueError):
        return parse_call(text)
