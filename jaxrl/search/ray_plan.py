"""The plan of a search on Ray, in a file that its processes read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import check_config, to_json
from jaxrl.config.data_files import read_object
from jaxrl.config.declarations import algorithm_of
from jaxrl.config.local_files import replace_text
from jaxrl.runs import ray_cluster
from jaxrl.search.dimension import as_choice
from jaxrl.search.runner import Task
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space

PLAN, NUMBER, VALUES = "plan", "number", "values"  # keys of the configuration that Ray gives a trial
_FILE = "ray.json"
_DERIVED = ("derived", "device_count")


@dataclass(frozen=True)
class RayPlan:
    """A search on Ray."""

    task: Task
    options: SearchOptions
    folder: SearchFolder

    @classmethod
    def read(cls, file: Path) -> RayPlan:
        """Reads the plan that `write` has written."""
        data = read_object(file)
        config = {name: value for name, value in data["config"].items() if name not in _DERIVED}
        options = SearchOptions(**data["options"])
        space = Space.parse(data["space"], algorithm_of(config))
        task = Task.of(ConfigDict(config), space, options)
        return cls(task, options, SearchFolder(str(file.parent)))

    def write(self) -> None:
        """Writes the plan."""
        data = {
            "config": to_json(check_config(self.task.config)),
            "space": self.task.space.to_json(),
            "options": asdict(self.options),
        }
        replace_text(self.file, json.dumps(data, indent=2) + "\n")

    @property
    def file(self) -> Path:
        return self.folder.path.absolute() / _FILE

    @property
    def stop_file(self) -> Path:
        """The file that asks all trials, on all nodes, to save and end."""
        return ray_cluster.stop_file(self.file.parent)


def values_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a trial, from the configuration that Ray passes to it."""
    values = {name: as_choice(value) for name, value in json.loads(config.get(VALUES, "{}")).items()}
    return values | {name: v for name, v in config.items() if name not in (PLAN, NUMBER, VALUES)}
