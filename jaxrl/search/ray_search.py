"""A search on Ray, from the command's side: a child process drives Ray Tune, this one shows its records."""

from __future__ import annotations

import fcntl
import importlib.util
import subprocess
import time
from typing import TextIO

from jaxrl.config import ConfigError, installation
from jaxrl.runs import ray_cluster
from jaxrl.runs.signals import Interruption
from jaxrl.search.display import SearchDisplay
from jaxrl.search.ray_plan import RayPlan
from jaxrl.search.runner import unknown_metric
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.trials import TrialRecords

_POLL_SECONDS = 0.2
_MODULES = {"random": "ray", "bayesopt": "bayes_opt", "hyperopt": "hyperopt"}
# Results without a score are those of failed trials.
_SETTINGS = {
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}


def require_installed(options: SearchOptions) -> None:
    """Raises ConfigError if Ray, or a package of its searcher, is missing."""
    for name, value, module in (
        ("method", "ray", "ray"),
        ("searcher", options.searcher, _MODULES[options.searcher]),
    ):
        if importlib.util.find_spec(module) is None:
            command = installation.command("ray")
            raise ConfigError(f"`--{name}` (={value!r}) needs the `ray` extra: {command}")


def run_trials(plan: RayPlan, display: SearchDisplay, interruption: Interruption) -> bool:
    """Runs the trials that the folder still lacks.

    Returns:
      True unless another process runs them.

    Raises:
      ConfigError: the cluster cannot be reached, or has no room for a trial, or no trial logs the metric.
      RunError: Ray failed.
    """
    with (plan.folder.path / ".ray.lock").open("a") as lock:
        if not _take_lock(lock, plan):
            return False
        trials = TrialRecords(plan.folder.path).read()
        if sum(trial.ended for trial in trials) >= plan.options.budget:
            return True
        plan.write()
        process = _start(plan, lock.fileno())
        try:
            _watch(plan, process, display, interruption)
        finally:
            ray_cluster.end_driver(process, plan.stop_file)
    if interruption.signum is None:
        ray_cluster.require_success(process, plan.log)
    return True


def _take_lock(lock: TextIO, plan: RayPlan) -> bool:
    """Takes the lock for driving Ray; returns False if another search has it.

    A driver whose search was killed may still be saving its trials: that one is waited for.
    """
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not plan.folder.is_alone():
                return False
        time.sleep(_POLL_SECONDS)


def _start(plan: RayPlan, lock: int) -> subprocess.Popen[bytes]:
    with plan.log.open("wb") as output:
        return ray_cluster.start_driver(
            "jaxrl.search.ray_tuner",
            str(plan.file),
            _SETTINGS,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
        )


def _watch(
    plan: RayPlan, process: subprocess.Popen[bytes], display: SearchDisplay, interruption: Interruption
) -> None:
    """Shows the trials as they end, until all have ended or a signal arrives.

    Raises:
      ConfigError: no trial logs the metric.
    """
    records = TrialRecords(plan.folder.path)
    began = dict[int, float]()
    shown = {trial.number for trial in records.read() if trial.ended}
    alive = True
    while alive and interruption.signum is None:
        alive = process.poll() is None
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
        time.sleep(_POLL_SECONDS)
