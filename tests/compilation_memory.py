"""Executables stay in memory, by the key of the folder of compiled programs."""

from __future__ import annotations

import inspect
from typing import Any

from jax._src import compiler

_kept: dict[str, Any] = {}


def keep_executables() -> None:
    """From here on, what this process compiles again costs no time.

    JAX knows executables by the function that was traced: a second trainer of one configuration traces and
    lowers its programs anew, and then reads their executables from the folder of compiled programs, which
    links them again, a quarter of a second for an iteration of training; those below its least time it
    compiles again. Here both find the executable that the process has, by the key of that folder. A JAX whose
    private functions are others compiles as ever.
    """
    read, compile_ = (getattr(compiler, name, None) for name in ("_cache_read", "_compile_and_write_cache"))
    if not (_takes(read, 1, "cache_key") and _takes(compile_, 6, "cache_key")):
        return

    def found(name: str, key: str, options: Any, backend: Any, devices: Any, *callbacks: Any) -> Any:
        if key in _kept:
            return _kept[key], 0
        executable, seconds = read(name, key, options, backend, devices, *callbacks)
        if executable is not None and not any(callbacks):
            _kept[key] = executable
        return executable, seconds

    def compiled(
        backend: Any, program: Any, devices: Any, options: Any, callbacks: Any, name: str, key: str
    ) -> Any:
        executable = compile_(backend, program, devices, options, callbacks, name, key)
        # One that calls Python calls the functions of its own trace.
        if not callbacks:
            _kept[key] = executable
        return executable

    compiler._cache_read = found
    compiler._compile_and_write_cache = compiled


def _takes(function: Any, place: int, name: str) -> bool:
    return function is not None and list(inspect.signature(function).parameters)[place : place + 1] == [name]


def forget_executables() -> None:
    """Lets go of all of them."""
    _kept.clear()
