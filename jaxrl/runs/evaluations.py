"""Results of suites, as `jaxrl evaluate --suite` writes them, for readers: they may come from anyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def suite_rows(suite: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(mode, category, its numbers) of the result of a suite, the category `all` last."""
    modes = suite.get("modes")
    for mode, found in modes.items() if isinstance(modes, Mapping) else ():
        if isinstance(found, Mapping) and isinstance(found.get("categories"), Mapping):
            for name, row in {**found["categories"], "all": found.get("all")}.items():
                if isinstance(row, Mapping):
                    yield str(mode), str(name), row
