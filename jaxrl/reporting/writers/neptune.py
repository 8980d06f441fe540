"""Metrics at Neptune."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config import flatten
from jaxrl.reporting.writers.tracker import Row, Tracker, keep_off_terminal


class NeptuneTracker(Tracker):
    """A run at Neptune.

    NEPTUNE_PROJECT and NEPTUNE_API_TOKEN name the project; NEPTUNE_MODE=offline writes files for
    `neptune sync`. `project` of the constructor is a tag.
    """

    name = "neptune"

    def open(self, resume: bool) -> int:
        os.environ.setdefault("NEPTUNE_DATA_DIRECTORY", os.path.join(self._folder, ".neptune"))
        import neptune

        keep_off_terminal("neptune")
        # A custom identifier names the run to resume even if it was made offline.
        run_id = (self._ids.read() if resume else None) or uuid.uuid4().hex
        self._run = neptune.init_run(
            custom_run_id=run_id,
            name=self._run_name,
            tags=[self._project],
            source_files=[],
            capture_stdout=False,
            capture_stderr=False,
            capture_traceback=False,
            capture_hardware_metrics=False,
        )
        self._ids.write(run_id)
        self._run["config"] = _replace_unsupported(self._config)
        return -1

    def log(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in row.scalars.items():
                if math.isfinite(value):
                    series = self._run[f"metrics/{name}"]
                    series.append(float(value), step=row.step, timestamp=row.time)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None:
            self._run["summary"] = _replace_unsupported(summary)
        self._run.stop()


def _replace_unsupported(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces lists and None, which Neptune does not support."""
    flat = flatten(values)
    return {name: x if isinstance(x, (bool, int, float, str)) else str(x) for name, x in flat.items()}
