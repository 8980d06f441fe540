"""Methods of pytrees as compiled programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax


def compiled_method(name: str) -> Callable[..., Any]:
    """A function of (value, *arguments) that calls the method of that name as a program of the value's class.

    One program for all classes would be the wrong one now and then: to jaxlib 0.10 the structures of two
    registered dataclasses with equally many fields are equal, whatever their classes, so that the trace of
    one is found for the other where their hashes meet.
    """

    def call(value: Any, *arguments: Any) -> Any:
        return _program(type(value), name)(value, *arguments)

    return call


@functools.cache
def _program(kind: type, name: str) -> Callable[..., Any]:
    return jax.jit(lambda value, *arguments: getattr(value, name)(*arguments))
