"""python -m jaxrl.search.ray_tuner FILE: lets Ray Tune run the trials of a search."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    PopulationBasedTraining,
    TrialScheduler,
)
from ray.tune.search.basic_variant import BasicVariantGenerator

from jaxrl.runs import ray_cluster
from jaxrl.search import population
from jaxrl.search.dimension import Dimension
from jaxrl.search.ray_proposals import Proposals, Recorder, mode_of
from jaxrl.search.ray_search import NUMBER, PLAN, RayPlan
from jaxrl.search.ray_trial import SCORE, STEP, RayTrial
from jaxrl.search.study import RandomSampler
from jaxrl.search.trials import StudyTrial, TrialCurve, TrialRecords

_FLAGS = {"CPU": "--cpus_per_trial", "GPU": "--gpus_per_trial"}
_KEPT = 4  # copies of each member


def drive(file: str) -> str:
    """Runs the trials that the folder of the plan lacks; returns a problem of the cluster, or ""."""
    plan = RayPlan.read(Path(file))
    resources = ray_cluster.resources(plan.task.options.cpus_per_trial, plan.task.options.gpus_per_trial)
    if problem := ray_cluster.shortage(resources, _FLAGS):
        return problem
    shutil.rmtree(_storage(plan), ignore_errors=True)  # Ray's own records; ours list the remaining trials.
    tuner = tune.Tuner(
        tune.with_resources(RayTrial, resources),
        param_space=_space(plan),
        tune_config=tune.TuneConfig(
            trial_name_creator=lambda trial: str(trial.config[NUMBER]), **_decisions(plan)
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(_storage(plan)),
            stop=_Stop(plan),
            callbacks=[Recorder(plan)],
            failure_config=tune.FailureConfig(max_failures=ray_cluster.RETRIES),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=_KEPT, checkpoint_at_end=False),
            verbose=0,
        ),
    )
    tuner.fit()
    shutil.rmtree(_storage(plan), ignore_errors=True)
    return ""


def _storage(plan: RayPlan) -> Path:
    return plan.file.parent / "ray"


class _Stop(tune.Stopper):
    """Ends all trials once the stop file exists."""

    def __init__(self, plan: RayPlan) -> None:
        self._file = plan.stop_file

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._file.exists()


def _decisions(plan: RayPlan) -> dict[str, Any]:
    """Scheduler and search algorithm, with the results of trials that have ended."""
    known = TrialRecords(plan.folder.path).read()
    random.seed(plan.task.options.seed)  # of population based training
    if plan.task.options.scheduler == "pbt":
        members = _members(plan, known)
        return {
            "scheduler": _exchange(plan),
            "search_alg": BasicVariantGenerator(points_to_evaluate=members),
            "num_samples": len(members),
        }
    left = plan.task.options.budget - sum(trial.ended for trial in known)
    scheduler = _halving_scheduler(plan, known) if plan.task.options.scheduler == "asha" else FIFOScheduler()
    return {"scheduler": scheduler, "search_alg": Proposals(plan), "num_samples": left}


def _space(plan: RayPlan) -> dict[str, Any]:
    """The entries of Ray's configurations of trials; for members also their values, which it varies."""
    if plan.task.options.scheduler != "pbt":
        return {PLAN: str(plan.file)}
    ranges = {d.name: tune.uniform(d.low, d.high) for d in plan.task.space.dimensions}
    return {PLAN: str(plan.file), NUMBER: tune.choice(list(range(plan.task.options.budget))), **ranges}


def _halving_scheduler(plan: RayPlan, known: list[StudyTrial]) -> TrialScheduler:
    """Asynchronous successive halving that knows the trials of the folder that have ended."""
    steps = plan.task.config.stop.steps
    scheduler = AsyncHyperBandScheduler(
        time_attr=STEP,
        metric=SCORE,
        mode=mode_of(plan),
        max_t=max(steps, 1),
        grace_period=max(1, steps // 20),
        reduction_factor=3,
        stop_last_trials=False,
    )
    for trial in known:
        if trial.ended:
            curve = TrialCurve(plan.folder.trial(trial.number), plan.task.objective.metric)
            curve.poll()
            ended = SimpleNamespace(trial_id=f"known-{trial.number}")  # all that the scheduler needs
            scheduler.on_trial_add(None, ended)
            for step, values in curve.history():
                if (score := plan.task.objective.of(values)) is not None:
                    scheduler.on_trial_result(None, ended, {STEP: step, SCORE: score})
    return scheduler


def _members(plan: RayPlan, known: list[StudyTrial]) -> list[dict[str, Any]]:
    """The population: members with the values that they have now, unless they have ended."""
    sampler = RandomSampler(plan.task)
    records = TrialRecords(plan.folder.path)
    with records.lock():
        for number in range(len(known), plan.task.options.budget):
            known.append(StudyTrial(number, sampler.point(number)))
            records.append(known[-1])
    now = population.with_last_values(known, plan.task.config, plan.folder.path)
    return [{PLAN: str(plan.file), NUMBER: trial.number, **trial.values} for trial in now if not trial.ended]


def _exchange(plan: RayPlan) -> TrialScheduler:
    """Population based training, every 5% of the steps, as on a single device."""
    dimensions = plan.task.space.dimensions

    def within(config: dict[str, Any]) -> dict[str, Any]:
        return config | {d.name: min(max(config[d.name], d.low), d.high) for d in dimensions}

    return PopulationBasedTraining(
        time_attr=STEP,
        metric=SCORE,
        mode=mode_of(plan),
        perturbation_interval=max(1, plan.task.config.stop.steps // 20),
        hyperparam_mutations={d.name: _draw(d) for d in dimensions},
        custom_explore_fn=within,
        log_config=False,
    )


def _draw(dimension: Dimension) -> Callable[[], float]:
    return lambda: dimension.at(random.random())


def main(file: str) -> int:
    """Connects to Ray and drives it there; returns the exit code of `ray_cluster.drive`."""
    plan = RayPlan.read(Path(file))
    address = plan.task.options.address or ray_cluster.LOCAL

    def work() -> str:
        if address.startswith("ray://"):
            # Tune decides on the cluster: this machine may be far away from it.
            return str(ray.get(ray.remote(num_cpus=0)(drive).remote(file)))
        return drive(file)

    return ray_cluster.drive(address, "--address", plan.stop_file, work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
