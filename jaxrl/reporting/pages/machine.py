"""The machine on which a report's runs were made, as rows of its table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from jaxrl.config import flatten, text, versions


def machine_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, value) of host, devices, cores, memory and versions.

    Args:
      summary: of a run, summary.json, which knows its host and device; {} if there is none.
    """
    import psutil

    said = flatten(summary)
    for name in ("host", "device"):
        if name in said:
            yield name, str(said[name])
    yield "cores", str(os.cpu_count())
    yield "memory", text.size(psutil.virtual_memory().total)
    yield from versions().items()
