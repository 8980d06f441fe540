"""Errors of memory that ran out, in one line: what took it, and what would take less."""

from __future__ import annotations

import re

import jax

from jaxrl.config import Config, text
from jaxrl.config.errors import RunError
from jaxrl.config.remedies import memory_remedies
from jaxrl.programs.jaxpr import largest_arrays
from jaxrl.programs.runtime import Runtime

_SHOWN = 3
_WANTED = re.compile(r"allocat\w* ([\d.]+) ?([KMGT]i?B|bytes)")


class OutOfMemory(RunError):
    """A program needs more memory than there is; the message names its largest arrays and the remedies."""


def is_out_of_memory(error: Exception) -> bool:
    """True if a program of XLA could not allocate its arrays, when it was compiled or when it ran."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def explain(error: Exception, config: Config, runtime: Runtime) -> OutOfMemory:
    """The error to raise instead of `error`, which `is_out_of_memory`."""
    parts = [f"out of memory{_describe_request(str(error))}"]
    platform = runtime.learning.topology.axis.platform
    found = largest_arrays(runtime.trace().jaxpr, platform, _SHOWN)
    parts.append(f"largest arrays on each device: {', '.join(map(str, found))}")
    parts.append(f"it takes less with {memory_remedies(config)}")
    return OutOfMemory("; ".join(parts))


def _describe_request(complaint: str) -> str:
    """The memory that XLA asked for, if it says so: `... allocating 123 bytes`, `allocate 1.5GiB`."""
    found = _WANTED.search(complaint)
    if found is None:
        return ""
    amount = text.size(float(found[1])) if found[2] == "bytes" else f"{found[1]} {found[2]}"
    return f", {amount} could not be allocated"
