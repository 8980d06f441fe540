"""What Ray tries next, and the records of how it went: `trials.jsonl` is what a search continues from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from jaxrl.experiments.search.ray_plan import NUMBER, PLAN, VALUES, RayPlan
from jaxrl.experiments.search.ray_trial import INTERRUPTED, NODE, REASON, SCORE
from jaxrl.experiments.search.runner import concluded
from jaxrl.experiments.search.samplers import RandomSampler, draw, generator
from jaxrl.experiments.search.space import Dimension
from jaxrl.experiments.search.study import next_number
from jaxrl.experiments.search.trials import StudyTrial, TrialCurve, TrialRecords

_RANDOM = 10  # random trials before a searcher learns
_MOST_ASKS = 20  # in a row that are not valid, before a random point that is


class Recorder(tune.Callback):
    """Writes to `trials.jsonl` how each trial ended."""

    def __init__(self, plan: RayPlan) -> None:
        self._file = str(plan.file)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        result = trial.last_result
        if not result.get(INTERRUPTED):
            # A scheduler stops those that say nothing about their end.
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
        with records.locked():
            began = next(t for t in records.read() if t.number == number)
            curve = TrialCurve(plan.folder.trial(number), plan.task.objective.metric)
            curve.poll()
            ended = concluded(began, curve, plan.task.objective, reason, pruned)
            records.append(ended)
        where = (trial.last_result or {}).get(NODE, "an unknown node")
        print(f"trial {number}: {ended.state}, {ended.score}, on {where}", flush=True)


class Proposals(Searcher):
    """Trials for Ray: those that were left unfinished first, then random ones or what its searcher says."""

    def __init__(self, plan: RayPlan) -> None:
        super().__init__(metric=SCORE, mode=mode_of(plan))
        self._plan, self._records = plan, TrialRecords(plan.folder.path)
        self._random = RandomSampler(plan.task.space, self._check, plan.options.seed)
        known = self._records.read()
        self._left = [trial for trial in known if not trial.ended]
        self._searcher = _searcher_of(plan, self._first_points(known))
        for trial in known:
            if trial.ended and self._searcher:
                self._searcher.suggest(f"known-{trial.number}")
                self._tell(f"known-{trial.number}", trial.score)

    def _first_points(self, known: Sequence[StudyTrial]) -> list[StudyTrial]:
        """Ended trials, then unfinished ones, then random ones until a searcher knows enough."""
        first = next_number(known)
        more = [StudyTrial(n, self._random.drawn(n)) for n in range(first, _RANDOM)]
        return [t for t in known if t.ended] + self._left + more

    def _check(self, values: Any) -> str:
        return self._plan.task.space.problem(self._plan.task.config, values)

    def set_search_properties(self, metric: str | None, mode: str | None, config: Any, **spec: Any) -> bool:
        """Everything is known already."""
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._left:
            trial = self._left.pop(0)
            if self._searcher:
                self._searcher.suggest(trial_id)
            return self._told(trial)
        with self._records.locked():
            known = self._records.read()
            if len(known) >= self._plan.options.budget:
                return Searcher.FINISHED
            number = next_number(known)
            trial = StudyTrial(number, self._values(trial_id, number, known))
            self._records.append(trial)
        return self._told(trial)

    def _values(self, trial_id: str, number: int, known: Sequence[StudyTrial]) -> dict[str, Any]:
        if self._searcher is None:
            return self._random.drawn(number)
        for _ in range(_MOST_ASKS):
            point = self._searcher.suggest(trial_id)
            values = {d.name: _decoded(d, point[_key(i)]) for i, d in enumerate(self._dimensions)}
            if not self._check(values):
                return values
            self._searcher.on_trial_complete(trial_id, error=True)
        rng = generator(self._plan.options.seed, number)
        return draw(self._plan.task.space, self._check, rng)

    @property
    def _dimensions(self) -> Sequence[Dimension]:
        return self._plan.task.space.dimensions

    def _told(self, trial: StudyTrial) -> dict[str, Any]:
        values = json.dumps(dict(trial.values))
        return {PLAN: str(self._plan.file), NUMBER: trial.number, VALUES: values}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if self._searcher:
            told = result or {}
            self._tell(trial_id, None if error or told.get(REASON) else told.get(SCORE))

    def _tell(self, trial_id: str, score: float | None) -> None:
        if score is None:
            self._searcher.on_trial_complete(trial_id, error=True)
        else:
            self._searcher.on_trial_complete(trial_id, {SCORE: score})

    def save(self, checkpoint_path: str) -> None:
        """Nothing: `trials.jsonl` is what a search continues from."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""


def mode_of(plan: RayPlan) -> str:
    """Ray's word for the direction."""
    return plan.task.objective.direction.removesuffix("imize")


def _searcher_of(plan: RayPlan, points: Sequence[StudyTrial]) -> Any:
    """Ray's searcher, which tries `points` first; None for random points.

    It sees ranges as [0, 1] and choices, if it knows such, by their place in the list.
    """
    dimensions, seed = plan.task.space.dimensions, plan.options.seed
    names_choices = plan.options.searcher == "hyperopt"
    given = [
        {_key(i): _encoded(d, t.values[d.name], names_choices) for i, d in enumerate(dimensions)}
        for t in points
    ]
    common: dict[str, Any] = {"metric": SCORE, "mode": mode_of(plan), "points_to_evaluate": given or None}
    match plan.options.searcher:
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
    """The name of a dimension for a searcher, which would take the dots of ours for a hierarchy."""
    return f"x{index}"


def _encoded(dimension: Dimension, value: Any, names_choices: bool) -> float | int:
    if dimension.choices and names_choices:
        return dimension.choices.index(value)
    return min(max(dimension.coordinate(value), 0.0), 1.0)


def _decoded(dimension: Dimension, told: Any) -> Any:
    if dimension.choices and isinstance(told, int):
        return dimension.choices[told]
    return dimension.at(float(told))
