"""Proposals of trials for Ray, and records of their ends in `trials.jsonl`, from which a search resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from jaxrl.search.dimension import Dimension
from jaxrl.search.ray_search import NUMBER, PLAN, VALUES, RayPlan
from jaxrl.search.ray_trial import INTERRUPTED, NODE, REASON, SCORE
from jaxrl.search.runner import conclude
from jaxrl.search.study import RandomSampler, next_number
from jaxrl.search.trials import FAILED, StudyTrial, TrialCurve, TrialRecords

_RANDOM = 10  # random trials before a searcher learns
_MOST_ASKS = 20  # in a row without a valid point; then a random one is sampled


class Recorder(tune.Callback):
    """Writes the end of each trial to `trials.jsonl`."""

    def __init__(self, plan: RayPlan) -> None:
        self._file = str(plan.file)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        result = trial.last_result
        if not result.get(INTERRUPTED):
            # Trials without a reason for their end were stopped by the scheduler.
            self._record(trial, result.get(REASON, "stopped"), pruned=REASON not in result)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        said = str(trial.get_error() or "its node or process was lost").strip().splitlines()
        self._record(trial, " ".join(said[-1].split())[:300] or "it failed")

    def _record(self, trial: Any, reason: str, pruned: bool = False) -> None:
        plan = RayPlan.read(Path(self._file))
        if pruned and plan.stop_file.exists():
            return  # It was ended, not judged.
        number = int(str(trial))
        records = TrialRecords(plan.folder.path)
        with records.lock():
            began = next(t for t in records.read() if t.number == number)
            curve = TrialCurve(plan.folder.trial(number), plan.task.objective.metric)
            curve.poll()
            ended = conclude(began, curve, plan.task.objective, reason, pruned)
            records.append(ended)
        where = (trial.last_result or {}).get(NODE, "an unknown node")
        print(f"trial {number}: {ended.state}, {ended.score}, on {where}", flush=True)


class Proposals(Searcher):
    """Trials for Ray: unfinished ones first, then random ones or its searcher's."""

    def __init__(self, plan: RayPlan) -> None:
        super().__init__(metric=SCORE, mode=mode_of(plan))
        self._plan = plan
        self._records = TrialRecords(plan.folder.path)
        self._random = RandomSampler(plan.task)
        known = self._records.read()
        self._left = [trial for trial in known if not trial.ended]
        self._searcher = _searcher_of(plan, self._first_points(known))
        for trial in known:
            if trial.ended and self._searcher:
                self._searcher.suggest(f"known-{trial.number}")
                # As while it ran: the last score before a failure is none of these values.
                score = None if trial.state == FAILED else trial.score
                self._tell(f"known-{trial.number}", score)

    def _first_points(self, known: Sequence[StudyTrial]) -> list[StudyTrial]:
        """Ended trials, then unfinished ones, then random ones until a searcher knows enough."""
        first = next_number(known)
        more = [StudyTrial(n, self._random.point(n)) for n in range(first, _RANDOM)]
        return [t for t in known if t.ended] + self._left + more

    def set_search_properties(self, metric: str | None, mode: str | None, config: Any, **spec: Any) -> bool:
        """Accepts the properties, which are known already."""
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._left:
            trial = self._left.pop(0)
            if self._searcher:
                self._searcher.suggest(trial_id)
            return self._ray_config(trial)
        with self._records.lock():
            known = self._records.read()
            if len(known) >= self._plan.task.options.budget:
                return Searcher.FINISHED
            number = next_number(known)
            trial = StudyTrial(number, self._values(trial_id, number))
            self._records.append(trial)
        return self._ray_config(trial)

    def _values(self, trial_id: str, number: int) -> dict[str, Any]:
        if self._searcher is None:
            return self._random.point(number)
        dimensions = self._plan.task.space.dimensions
        for _ in range(_MOST_ASKS):
            point = self._searcher.suggest(trial_id)
            values = {d.name: _decode(d, point[_key(i)]) for i, d in enumerate(dimensions)}
            if not self._plan.task.problem(values):
                return values
            self._searcher.on_trial_complete(trial_id, error=True)
        return self._random.point(number)

    def _ray_config(self, trial: StudyTrial) -> dict[str, Any]:
        values = json.dumps(dict(trial.values))
        return {PLAN: str(self._plan.file), NUMBER: trial.number, VALUES: values}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if self._searcher:
            last = result or {}
            self._tell(trial_id, None if error or last.get(REASON) else last.get(SCORE))

    def _tell(self, trial_id: str, score: float | None) -> None:
        if score is None:
            self._searcher.on_trial_complete(trial_id, error=True)
        else:
            self._searcher.on_trial_complete(trial_id, {SCORE: score})

    def save(self, checkpoint_path: str) -> None:
        """Nothing to do: a search resumes from `trials.jsonl`."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""


def mode_of(plan: RayPlan) -> str:
    """The direction as Ray names it."""
    return plan.task.objective.direction.removesuffix("imize")


def _searcher_of(plan: RayPlan, points: Sequence[StudyTrial]) -> Any:
    """Ray's searcher, which tries `points` first; None for random points.

    Its ranges are [0, 1]; its choices, if it supports them, are positions in the list.
    """
    dimensions = plan.task.space.dimensions
    seed = plan.task.options.seed
    names_choices = plan.task.options.searcher == "hyperopt"
    given = [
        {_key(i): _encode(d, t.values[d.name], names_choices) for i, d in enumerate(dimensions)}
        for t in points
    ]
    common: dict[str, Any] = {"metric": SCORE, "mode": mode_of(plan), "points_to_evaluate": given or None}
    match plan.task.options.searcher:
        case "bayesopt":
            from ray.tune.search.bayesopt import BayesOptSearch

            box = {_key(i): (0.0, 1.0) for i in range(len(dimensions))}
            return BayesOptSearch(
                box, random_state=seed, random_search_steps=0, skip_duplicate=False, patience=10**9, **common
            )
        case "hyperopt":
            from hyperopt import hp
            from ray.tune.search.hyperopt import HyperOptSearch

            space = {
                _key(i): hp.choice(_key(i), list(range(len(d.choices))))
                if d.choices
                else hp.uniform(_key(i), 0, 1)
                for i, d in enumerate(dimensions)
            }
            return HyperOptSearch(space, random_state_seed=seed, n_initial_points=_RANDOM, **common)
    return None


def _key(index: int) -> str:
    """The name of a dimension for a searcher, to which the dots of ours would mean a hierarchy."""
    return f"x{index}"


def _encode(dimension: Dimension, value: Any, names_choices: bool) -> float | int:
    if dimension.choices and names_choices:
        return dimension.choices.index(value)
    return min(max(dimension.coordinate(value), 0.0), 1.0)


def _decode(dimension: Dimension, value: Any) -> Any:
    if dimension.choices and isinstance(value, int):
        return dimension.choices[value]
    return dimension.at(float(value))
