"""Names with arguments, `Name(argument=value)`, and the errors for wrong ones.

Environments and wrappers are both named like this in a config. Arguments are Python literals, read
with `ast` and never evaluated, so a config from a stranger cannot run code.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# What arrays hold: JAX computes in 32 bits.
LARGEST_INT32 = 2**31 - 1
LARGEST_FLOAT32 = 3.4028235e38
_LIST_ALL_BESIDE_SUGGESTIONS = 12
_LIST_ALL_WITHOUT_SUGGESTIONS = 60


def parse_call(text: str) -> tuple[str, dict[str, Any]]:
    """Splits `"name(k=v, ...)"` into `("name", {"k": v, ...})`; a bare `"name"` has no arguments.

    ValueError: the text is not of this form, or a value is not a literal.
    """
    name, parenthesis, rest = text.strip().partition("(")
    name = name.strip()
    form = f"{text!r} is not of the form name or name(argument=value)"
    if not name or any(c.isspace() or c in ")=," for c in name):
        raise ValueError(form)
    if not parenthesis:
        return name, {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:  # the last two of deep nesting
        raise ValueError(form) from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(form)
    if call.args:
        raise ValueError(f"{text!r}: arguments need their names, as in name(argument=value)")
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in kwargs:
            raise ValueError(f"{text!r}: every argument needs its own name")
        try:
            kwargs[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, MemoryError, RecursionError) as error:
            rule = "must be a Python literal (number, string, True, tuple, ...)"
            raise ValueError(f"{text!r}: {keyword.arg} {rule}") from error
    return name, kwargs


def format_call(name: str, kwargs: Mapping[str, Any]) -> str:
    """The inverse of `parse_call`."""
    if not kwargs:
        return name
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in kwargs.items())})"


def changed_call(name: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """`format_call` with the `arguments`, by parameter of `factory`, that differ from its defaults.

    Parameters without a default are left out; keyword arguments of any name are `arguments["kwargs"]`.
    """
    known = [p for p in inspect.signature(factory).parameters.values() if p.default is not p.empty]
    changed = {p.name: x for p in known if (x := arguments[p.name]) != p.default}
    return format_call(name, changed | arguments.get("kwargs", {}))


def unknown(kind: str, name: str, valid: Iterable[str]) -> ValueError:
    """Returns the error for an unknown `kind` called `name`: one line with the nearest valid names.

    All valid names are listed if they are few or if none is near, unless they are very many.
    """
    names = sorted(valid)
    by_lower_case = {n.lower(): n for n in names}
    cutoff = 0.5 if len(names) <= _LIST_ALL_WITHOUT_SUGGESTIONS else 0.0
    close = difflib.get_close_matches(name.lower(), by_lower_case, n=3, cutoff=cutoff)
    near = [by_lower_case[n] for n in close]
    message = f"unknown {kind} {name!r}"
    if near:
        message += f"; did you mean {' or '.join(near)}?"
    if not near or len(names) <= _LIST_ALL_BESIDE_SUGGESTIONS:
        message += f" (valid: {', '.join(names) or 'none'})"
    return ValueError(message)


def check_arguments(
    label: str, factory: Callable[..., Any], kwargs: Mapping[str, Any], skip: int = 0
) -> None:
    """Checks that `factory` takes the keyword arguments `kwargs` and lacks none.

    The ValueError begins with `label`, e.g. `environment jaxrl:ProbeMemory`, and names the argument and the
    valid ones. `skip` leading positional parameters are the caller's.
    """
    parameters = list(inspect.signature(factory).parameters.values())[skip:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in kwargs:
        if not takes_any and name not in {p.name for p in named}:
            raise unknown(f"argument of {label}", name, [p.name for p in named])
    missing = [p.name for p in named if p.default is p.empty and p.name not in kwargs]
    if missing:
        raise ValueError(f"{label} needs the argument {missing[0]!r}")


def check_32_bits(label: str, value: object) -> None:
    """Raises ValueError if a number, alone or in a tuple or list, does not fit into 32 bits."""
    if isinstance(value, tuple | list):
        for x in value:
            check_32_bits(label, x)
    elif isinstance(value, int) and abs(value) > LARGEST_INT32:
        raise ValueError(f"{label} (={value!r}) must lie between -{LARGEST_INT32} and {LARGEST_INT32}")
    elif isinstance(value, float) and math.isfinite(value) and abs(value) > LARGEST_FLOAT32:
        raise ValueError(
            f"{label} (={value!r}) must be at most {LARGEST_FLOAT32} in magnitude, as float32 holds"
        )


def check_numbers(label: str, kwargs: Mapping[str, Any]) -> None:
    """`check_32_bits` of each argument, named `label: argument`."""
    for key, value in kwargs.items():
        check_32_bits(f"{label}: {key}", value)


def check_positive(label: str, value: object, largest: int = LARGEST_INT32) -> int:
    """Returns `value` if it is an int in [1, largest]; `label` names it in the `ValueError` otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{label} (={value!r}) must be an integer of at least 1")
    if value > largest:
        raise ValueError(f"{label} (={value!r}) must be at most {largest}")
    return value


def check_between(label: str, value: object, low: float, high: float) -> float:
    """Returns `value` as a float if it is a number in [low, high]; `label` names it in the `ValueError`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # type: ignore[operator]
        raise ValueError(f"{label} (={value!r}) must be a number from {low:g} to {high:g}")
    return float(value)  # type: ignore[arg-type]


def check_whole(label: str, value: object, low: int, high: int) -> int:
    """Returns `value` if it is an int in [low, high]; `label` names it in the `ValueError` otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{label} (={value!r}) must be an integer from {low} to {high}")
    return value


def check_bool(label: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{label} (={value!r}) must be True or False")
    return value


def check_choice(label: str, value: object, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{label} (={value!r}) must be one of {', '.join(choices)}")
    return value
