"""A search on Ray: its plan, in a file; a child process drives Ray Tune, this one shows its records."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import check_config, installation, to_json
from jaxrl.config.data_files import read_object
from jaxrl.config.declarations import algorithm_of
from jaxrl.config.local_files import replace_text
from jaxrl.runs import ray_cluster
from jaxrl.runs.child_process import POLL_SECONDS, take_lock
from jaxrl.runs.signals import Interruption
from jaxrl.search.dimension import as_choice
from jaxrl.search.runner import SearchDisplay, unknown_metric
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.trials import Task, TrialRecords

PLAN, NUMBER, VALUES = "plan", "number", "values"  # keys of the configuration that Ray gives a trial
_FILE = "ray.json"
_DERIVED = ("derived", "device_count")
_MODULES = {"random": "ray", "bayesopt": "bayes_opt", "hyperopt": "hyperopt"}
# Results without a score are of failed trials.
_SETTINGS = {
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}


@dataclass(frozen=True)
class RayPlan:
    """A search on Ray."""

    task: Task
    folder: SearchFolder

    @classmethod
    def read(cls, file: Path) -> RayPlan:
        """Reads the plan that `write` has written."""
        data = read_object(file)
        config = {name: value for name, value in data["config"].items() if name not in _DERIVED}
        space = Space.parse(data["space"], algorithm_of(config))
        task = Task(ConfigDict(config), space, SearchOptions(**data["options"]))
        return cls(task, SearchFolder(str(file.parent)))

    def write(self) -> None:
        data = {
            "config": to_json(check_config(self.task.config)),
            "space": self.task.space.to_json(),
            "options": asdict(self.task.options),
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


def require_installed(options: SearchOptions) -> None:
    """Raises ConfigError if Ray, or a package of its searcher, is missing."""
    installation.require("`--method` (='ray')", "ray", "ray")
    installation.require(f"`--searcher` (={options.searcher!r})", "ray", _MODULES[options.searcher])


def run_trials(plan: RayPlan, display: SearchDisplay, interruption: Interruption) -> bool:
    """Runs the trials that the folder still lacks; True unless another process runs them.

    Raises:
      ConfigError: the cluster cannot be reached, or has no room for a trial, or no trial logs the metric.
      RunError: Ray failed.
    """
    file = plan.folder.path / ".ray.lock"
    # A driver whose search was killed may still be saving its trials: that one is waited for.
    while (lock := take_lock(file)) is None:
        if not plan.folder.is_alone():
            return False
        time.sleep(POLL_SECONDS)
    with contextlib.closing(lock):
        trials = TrialRecords(plan.folder.path).read()
        if sum(trial.ended for trial in trials) >= plan.task.options.budget:
            return True
        plan.write()
        ray_cluster.run_driver(
            "jaxrl.search.ray_tuner",
            plan.file,
            plan.file.parent,
            interruption,
            display.message,
            _follower(plan, display),
            _SETTINGS,
            (lock,),
        )
    return True


def _follower(plan: RayPlan, display: SearchDisplay) -> Callable[[], None]:
    """Shows the trials that have ended since its last call; raises ConfigError if none logs the metric."""
    records = TrialRecords(plan.folder.path)
    began = dict[int, float]()
    shown = {trial.number for trial in records.read() if trial.ended}

    def follow() -> None:
        trials = records.read()
        for trial in trials:
            began.setdefault(trial.number, time.monotonic())
            if trial.ended and trial.number not in shown:
                shown.add(trial.number)
                display.show_end(trial, time.monotonic() - began[trial.number])
                if (problem := unknown_metric(trial, trials, plan.task.objective)) is not None:
                    raise problem
        if display.is_due():
            display.update(trials)

    return follow
