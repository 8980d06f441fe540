"""A search on Ray, from the command's side: a child process drives Ray Tune, this one shows its records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from jaxrl.config import installation
from jaxrl.runs import ray_cluster
from jaxrl.runs.child_process import POLL_SECONDS, take_lock
from jaxrl.runs.signals import Interruption
from jaxrl.search.display import SearchDisplay
from jaxrl.search.ray_plan import RayPlan
from jaxrl.search.runner import unknown_metric
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.trials import TrialRecords

_MODULES = {"random": "ray", "bayesopt": "bayes_opt", "hyperopt": "hyperopt"}
# Results without a score are of failed trials.
_SETTINGS = {
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}


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
        if sum(trial.ended for trial in trials) >= plan.options.budget:
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
