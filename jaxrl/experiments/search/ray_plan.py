"""What the processes of a search on Ray tell each other, in a file of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import check_config, to_json
from jaxrl.experiments.search.folder import SearchFolder
from jaxrl.experiments.search.options import SearchOptions
from jaxrl.experiments.search.runner import Task
from jaxrl.experiments.search.space import Space, as_choice
from jaxrl.metrics.files import replace_text

PLAN, NUMBER, VALUES = "plan", "number", "values"  # keys of the configuration that Ray gives a trial
_FILE, _STOP = "ray.json", ".ray.stop"
_DERIVED = ("derived", "device_count")


@dataclass(frozen=True)
class RayPlan:
    """A search on Ray.

    Attributes:
      task: what trials train.
      options: how to search.
      folder: of the search, which all nodes see.
    """

    task: Task
    options: SearchOptions
    folder: SearchFolder

    @classmethod
    def read(cls, file: Path) -> RayPlan:
        """The plan that `write` has written."""
        told = json.loads(file.read_text())
        config = {name: value for name, value in told["config"].items() if name not in _DERIVED}
        options = SearchOptions(**told["options"])
        task = Task.of(ConfigDict(config), Space.parse(told["space"]), options)
        return cls(task, options, SearchFolder(str(file.parent)))

    def write(self) -> None:
        """Writes the plan, and takes back an earlier request to stop."""
        told = {
            "config": to_json(check_config(self.task.config)),
            "space": self.task.space.to_json(),
            "options": asdict(self.options),
        }
        self.stop_file.unlink(missing_ok=True)
        replace_text(self.file, json.dumps(told, indent=2) + "\n")

    @property
    def file(self) -> Path:
        return self.folder.path.absolute() / _FILE

    @property
    def log(self) -> Path:
        """What Ray and the process that talks to it print."""
        return self.file.with_suffix(".log")

    @property
    def stop_file(self) -> Path:
        """Asks all trials to save and end, wherever they are."""
        return self.folder.path.absolute() / _STOP


def values_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a trial, from the configuration that Ray gives it."""
    values = {name: as_choice(value) for name, value in json.loads(config.get(VALUES, "{}")).items()}
    return values | {name: v for name, v in config.items() if name not in (PLAN, NUMBER, VALUES)}
