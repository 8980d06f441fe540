"""The steps at which stages of a run end, from its rows in the order of their steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Of training, and of a curriculum.
_METRICS = ("stage", "curriculum/stage")
_IN_LINE = re.compile(rb'"(?:curriculum/)?stage": ?[^,}]*')


class StageEnds:
    """The steps at which a stage of training, or of a curriculum, ended and another began."""

    def __init__(self) -> None:
        self.steps: set[float] = set()
        self._before: dict[str, tuple[float, float]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Takes the next row of metrics."""
        for name in _METRICS:
            if (stage := row.get(name)) is None:
                continue
            step, before = self._before.get(name, (row["step"], stage))
            if before != stage:
                # A row ends with a stage of training; within one a curriculum counts from its change on.
                began = row["step"] - (row.get("curriculum/steps") or 0)
                self.steps.add(float(step if name == "stage" else max(began, step)))
            self._before[name] = row["step"], stage


class StageLines:
    """Lines of metrics.jsonl; only the ones around a change of stage need to be parsed."""

    def __init__(self) -> None:
        self._stages: list[bytes] = []
        self._last = b""

    def changed_lines(self, line: bytes) -> tuple[bytes, ...]:
        """The lines to parse if `line` has other stages than before: the last before it, and itself."""
        if not (stages := _IN_LINE.findall(line)):
            return ()
        last = self._last
        self._last = line
        if stages == self._stages:
            return ()
        self._stages = stages
        return (last, line) if last else (line,)
