"""The best trial of a search: verified with unseen seeds, and written as a config file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxrl.config import check_config, text
from jaxrl.config.listing import config_file
from jaxrl.runs.executor import Executor, PlannedRun, run_all
from jaxrl.runs.signals import Interruption
from jaxrl.search.dimension import label
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.trials import StudyTrial, Task, TrialCurve

MOST_CANDIDATES = 3
_FIRST_SEED = 101  # counted from the trials' own


@dataclass(frozen=True)
class Verified:
    """A trial that was trained again with fresh seeds; its score with each is None if that run failed."""

    trial: StudyTrial
    seeds: tuple[int, ...]
    scores: tuple[float | None, ...]

    @property
    def score(self) -> float:
        """The mean over the fresh seeds; NaN if one of them failed."""
        reached = [x for x in self.scores if x is not None]
        return sum(reached) / len(reached) if len(reached) == len(self.scores) else math.nan


def verify(
    ranked: Sequence[StudyTrial],
    task: Task,
    folder: SearchFolder,
    executor: Executor,
    interruption: Interruption,
    say: Callable[[str], None],
) -> list[Verified]:
    """Trains the best trials again with fresh seeds; the best of these means comes first.

    The highest of many noisy scores is too high. So after the first, another candidate is tried while its own
    searched score is better than the best verified mean, up to three in all.

    Args:
      ranked: trials that ran to their end, the best first.
      folder: the folder of the search; finished runs there are not repeated.
      interruption: ends this early; the list is then empty.
    """
    gain = task.objective.gain
    found = list[Verified]()
    for trial in ranked[:MOST_CANDIDATES]:
        best = max((gain(v.score) for v in found if not math.isnan(v.score)), default=-math.inf)
        if found and gain(trial.score or 0.0) <= best:
            break
        say(f"verifying trial {trial.number} with {_fresh(task.options.verify)}")
        one = _verify_one(trial, task, folder, executor, interruption)
        if interruption.signum is not None:
            return []
        found.append(one)
        say(f"trial {trial.number}: searched {text.number(trial.score)}, verified {summary_of(one)}")
    return sorted(found, key=lambda v: math.inf if math.isnan(v.score) else -gain(v.score))


def _verify_one(
    trial: StudyTrial, task: Task, folder: SearchFolder, executor: Executor, interruption: Interruption
) -> Verified:
    first = int(task.config.get("seed", 0)) + _FIRST_SEED
    seeds = tuple((first + index) % 2**32 for index in range(task.options.verify))
    places = {str(seed): folder.verification(trial.number, seed) for seed in seeds}
    runs = [
        PlannedRun(name, task.config_of(trial, int(name)), place)
        for name, place in places.items()
        if not (place / "summary.json").exists()
    ]
    reasons = run_all(runs, executor, interruption)
    scores = []
    for name, place in places.items():
        curve = TrialCurve(place, task.objective.metric)
        curve.poll()
        scores.append(None if reasons.get(name) else task.objective.of(curve.curve))
    return Verified(trial, seeds, tuple(scores))


def best_config(trial: StudyTrial, verified: Verified | None, task: Task) -> str:
    """A config file of the winner, whose docstring has the scores with and without fresh seeds."""
    config = check_config(task.space.apply(task.config, trial.values))
    said = f"{task.objective.score} {task.objective.metric}"
    lines = [
        f"Trial {trial.number} of a search on {config.env.name}.",
        "",
        "Command:  jaxrl train best_config.py",
        f"Searched: {said} {text.number(trial.score)}, the best of its search and so likely too good",
        "Verified: " + ("not with other seeds" if verified is None else summary_of(verified)),
        *(f"Chosen:   {name} = {label(value)}" for name, value in trial.values.items()),
    ]
    about = "\n".join(line.replace("\\", "\\\\").replace('"""', "'''") for line in lines) + "\n"
    return config_file(config, about, changed_only=True) + "\n"


def summary_of(verified: Verified) -> str:
    """`481.2 with 3 fresh seeds (470.1, 488.0, 485.4)`."""
    each = ", ".join("failed" if x is None else text.number(x) for x in verified.scores)
    mean = "not reached" if math.isnan(verified.score) else text.number(verified.score)
    return f"{mean} with {_fresh(len(verified.seeds))} ({each})"


def _fresh(count: int) -> str:
    return f"{count} fresh seed{'' if count == 1 else 's'}"
