"""Entry points that installed packages register: found in their metadata, imported on demand."""

from __future__ import annotations

import functools
import os
import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from jaxrl.envs import modules


def find(group: str, name: str) -> EntryPoint | None:
    """The entry point `name` of a group, not imported; None: there is none; ValueError: there are two."""
    found = [point for point in _of_group(group, tuple(sys.path), os.getcwd()) if point.name == name]
    if len(found) > 1:
        packages = ", ".join(sorted(map(_package, found)))
        raise ValueError(f"{name} is registered by several packages: {packages}; uninstall all but one")
    return found[0] if found else None


def names(group: str) -> list[str]:
    return sorted({point.name for point in _of_group(group, tuple(sys.path), os.getcwd())})


def load(point: EntryPoint) -> Any:
    """Imports what an entry point names; ValueError, one line, if that fails."""
    described = f"the entry point {point.name} of {_package(point)}"
    try:
        found: Any = modules.load(point.module)
        for part in point.attr.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{described} cannot be loaded: {' '.join(str(error).split())}") from error
    return found


def clash(point: EntryPoint) -> ValueError:
    return ValueError(f"the name is taken, and {_package(point)} registers it as well: uninstall that one")


@functools.cache
def _of_group(group: str, path: tuple[str, ...], here: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, for a path of imports; not those in the working folder `here`."""
    return tuple(
        point
        for point in metadata.entry_points(group=group)
        if not point.dist or os.path.realpath(str(point.dist.locate_file(""))) != here
    )


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"
