"""The runs in some folders, found and read repeatedly."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from jaxrl.config import ConfigError
from jaxrl.diagnostics.live.live_run import LiveRun
from jaxrl.runs import records


class Watcher:
    """The runs in the folders `names`; `look` finds new runs and reads new rows of each."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._found: dict[str, LiveRun] = {}

    @property
    def runs(self) -> list[LiveRun]:
        return list(self._found.values())

    def look(self) -> None:
        """Finds new runs and reads new rows."""
        for name in self._names:
            with contextlib.suppress(ConfigError, OSError):  # no run yet, or the network is down
                for path in records.find([name]):
                    if path not in self._found:
                        self._found[path] = LiveRun(path)
        for run in self._found.values():
            run.poll()
