"""Finds branches that return different classes, and carries that change theirs, while a program is traced.

`jax.lax.cond` and `switch` (0.10.2 and 0.11.2) take two dataclasses with equally many fields for one: the
result is of the first one's class, with the other's numbers by position. `scan`, `while_loop` and `fori_loop`
take another class for their carry in the same way. What jaxrl and its tests trace is compared here.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import jax

_OURS = ("jaxrl", "envs", "tests", "configs", "examples")


def install() -> None:
    """From here on, in this process."""
    checks = {"cond": _cond, "switch": _switch, "scan": _scan, "while_loop": _while, "fori_loop": _fori}
    for name, check in checks.items():
        real = getattr(jax.lax, name)
        setattr(jax.lax, name, functools.wraps(real)(functools.partial(_of_ours, real, check)))


class _Traced:
    """A function that notes the structure of what it returned last, as text: as such two classes differ."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.structure: str | None = None  # None: jax has traced it before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = self._function(*args, **kwargs)
        self.structure = _text(jax.tree.structure(found))
        return found

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Traced:
        """The same for the same function, so that jax finds what it has traced."""
        # The methods of all objects of a class would share the note of their function.
        own = {} if inspect.ismethod(function) else getattr(function, "__dict__", {})
        found = own.setdefault("_noted", cls(function))
        found.structure = None
        return found


def _of_ours(real: Callable[..., Any], check: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] not in _OURS:
        return real(*args, **kwargs)
    return check(real, *args, **kwargs)


def _cond(real: Any, pred: Any, true_fun: Any, false_fun: Any, *rest: Any, **given: Any) -> Any:
    branches = _Traced.of(true_fun), _Traced.of(false_fun)
    result = real(pred, *branches, *rest, **given)
    _require_one({x.structure for x in branches}, "the branches of `cond` return")
    return result


def _switch(real: Any, index: Any, branches: Any, *rest: Any, **given: Any) -> Any:
    noted = [_Traced.of(x) for x in branches]
    result = real(index, noted, *rest, **given)
    _require_one({x.structure for x in noted}, "the branches of `switch` return")
    return result


def _scan(real: Any, f: Any, init: Any, *rest: Any, **given: Any) -> Any:
    after = None

    @functools.wraps(f)
    def noted(carry: Any, x: Any) -> Any:
        nonlocal after
        found = f(carry, x)
        after = _text(jax.tree.structure(found[0]))
        return found

    result = real(noted, init, *rest, **given)
    _require_one({after, _text(jax.tree.structure(init))}, "the carry of `scan` is")
    return result


def _while(real: Any, cond_fun: Any, body_fun: Any, init_val: Any) -> Any:
    noted = _Traced.of(body_fun)
    result = real(cond_fun, noted, init_val)
    _require_one({noted.structure, _text(jax.tree.structure(init_val))}, "the carry of `while_loop` is")
    return result


def _fori(real: Any, lower: Any, upper: Any, body_fun: Any, init_val: Any, **given: Any) -> Any:
    noted = _Traced.of(body_fun)
    result = real(lower, upper, noted, init_val, **given)
    _require_one({noted.structure, _text(jax.tree.structure(init_val))}, "the carry of `fori_loop` is")
    return result


def _text(structure: Any) -> str:
    """Without the addresses of objects, such as MuJoCo's wrapped arrays, which are equal all the same."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(structure))


def _require_one(structures: set[str | None], said: str) -> None:
    known = structures - {None}
    if len(known) > 1:
        raise TypeError(f"{said} {' and '.join(sorted(map(str, known)))}")
