"""Compiled programs stay in memory, so that what a process compiles again costs no time.

JAX knows them by the function that was traced: a second trainer of one configuration traces and lowers its
programs anew, and then reads their executables from the folder of compiled programs, which links them again,
a quarter of a second for an iteration of training; those below its least time it compiles again. Here both find
the executable that the process has, by the key of that folder.
"""

from __future__ import annotations

from typing import Any

from jax._src import compiler

_kept: dict[str, Any] = {}


def install() -> None:
    """From here on, in this process."""
    read, compile_ = compiler._cache_read, compiler._compile_and_write_cache

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


def forget() -> None:
    """Lets go of all of them."""
    _kept.clear()
