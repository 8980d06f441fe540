"""Population based training (Jaderberg et al. 2017): copies of the best members replace the worst."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.evaluation.result import Result
from jaxrl.population.shared_calls import SharedCalls
from jaxrl.runs.members import Lineage
from jaxrl.runs.signals import Interruption
from jaxrl.training.trainer import Trainer
from jaxrl.types import Array, LearnerState, Sharded, marks

# The shares of the population, at the bottom and at the top, that are replaced and copied.
_SHARE = 0.25
# A copied value is sampled again with this probability, else multiplied by one of the factors.
_RESAMPLE_PROBABILITY = 0.25
_FACTORS = (0.8, 1.2)
_POSTPONED = object()  # the answer to members that are to evaluate again before they exchange anything


@dataclass(frozen=True)
class Range:
    """The values that a hyperparameter may take; `is_log` samples uniformly in the logarithm."""

    low: float
    high: float
    is_log: bool = False

    def vary(self, value: float, rng: np.random.Generator) -> float:
        """Returns `value` times 0.8 or 1.2 within the range, or a new sample from it."""
        if rng.random() >= _RESAMPLE_PROBABILITY:
            return float(np.clip(value * rng.choice(_FACTORS), self.low, self.high))
        if self.is_log:
            return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return float(rng.uniform(self.low, self.high))


@dataclass(frozen=True)
class Candidate:
    """A member at an evaluation."""

    score: float
    learner: LearnerState

    @property
    def rank(self) -> float:
        """The score to compare by: one that is not finite is the lowest."""
        return self.score if math.isfinite(self.score) else -math.inf


class Exchange:
    """Copies the best members over the worst, after each evaluation but the last.

    The bottom quarter by mean return takes over parameters, optimiser, statistics and hyperparameters of
    better members sampled from the top quarter, with varied hyperparameters. The choices depend on `seed`,
    the step and the copies before it, so a resumed population repeats them.
    """

    def __init__(self, members: Sequence[str], ranges: Mapping[str, Range], seed: int, lineage: Path) -> None:
        """Prepares the exchange.

        Args:
          ranges: by the name of the hyperparameter; the others are copied as they are.
          lineage: file to which each copy is added, see `Lineage`.
        """
        self._members = members
        self._ranges = ranges
        self._seed = seed
        self._lineage = Lineage(lineage)

    def callbacks(
        self, calls: SharedCalls, interruption: Interruption
    ) -> list[Callable[[Trainer, Result], None]]:
        """The callbacks for the trainers of the members, after an evaluation.

        A signal may keep a member from its evaluation. Then none takes over anything: all evaluate again
        once they are resumed.
        """

        def choose(candidates: Mapping[int, tuple[int, Candidate]]) -> Mapping[int, object]:
            # A member that was kept had seen the signal before it left, so before this call.
            kept = interruption.signum is not None
            return dict.fromkeys(candidates, _POSTPONED) if kept else self.choose(candidates)

        def take_part(member: int, trainer: Trainer, result: Result) -> None:
            if trainer.progress.iteration >= trainer.config.num_iterations:
                return
            candidate = trainer.steps, Candidate(result.mean, trainer.state.learner)
            learner = calls.call(member, choose, candidate)
            if learner is _POSTPONED:
                trainer.postpone_evaluation()
            elif learner is not None:
                trainer.adopt(learner)

        return [functools.partial(take_part, member) for member in range(len(self._members))]

    def rewind(self, step: int, repeats: bool) -> None:
        """Forgets the copies after `step`, from which the population resumes; with `repeats` also its."""
        self._lineage.rewind(step - 1 if repeats else step)

    def choose(self, candidates: Mapping[int, tuple[int, Candidate]]) -> dict[int, LearnerState | None]:
        """The learner with which each member continues, given (step, candidate); None for its own."""
        step = next(iter(candidates.values()))[0]
        found = {member: candidate for member, (_, candidate) in candidates.items()}
        ranked = self._rank(found, step)
        count = max(1, int(_SHARE * len(ranked))) if len(ranked) > 1 else 0
        rng = np.random.default_rng([self._seed, step])
        chosen: dict[int, LearnerState | None] = dict.fromkeys(found)
        lines = []
        for loser in ranked[:count]:
            better = [m for m in reversed(ranked[-count:]) if found[m].rank > found[loser].rank]
            if not better:
                continue
            winner = better[int(rng.integers(len(better)))]
            own = {name: float(getattr(found[winner].learner.hyperparams, name)) for name in self._ranges}
            values = {name: self._ranges[name].vary(value, rng) for name, value in own.items()}
            chosen[loser] = _copy(found[winner].learner, found[loser].learner, values)
            score = found[loser].score
            scores = {"score": score if math.isfinite(score) else None, "source_score": found[winner].score}
            names = {"member": self._members[loser], "source": self._members[winner]}
            lines.append({"step": step, **names, **scores, "values": values})
        self._lineage.append(lines)
        return chosen

    def _rank(self, candidates: Mapping[int, Candidate], step: int) -> list[int]:
        """The members, the worst first; if equal, the one with newer values, then by lot."""
        since = self._lineage.latest_copy_steps()
        lots = np.random.default_rng([self._seed, step, 1]).permutation(len(self._members))

        def place(member: int) -> tuple[float, int, int]:
            return candidates[member].rank, -since.get(self._members[member], 0), int(lots[member])

        return sorted(candidates, key=place)


def _copy(source: LearnerState, own: LearnerState, values: Mapping[str, float]) -> LearnerState:
    """A copy of the source on the device of `own`, with these hyperparameters; fields per environment stay.

    Each member's arrays are donated to its next iteration, so that none may be of two members.
    """

    def copied(new: Array, old: Array) -> Array:
        return jax.device_put(new, old.sharding, may_alias=False)

    moved: LearnerState = jax.tree.map(copied, source, own)
    of_environments = {name: getattr(own, name) for name in marks(type(own), Sharded)}
    device = jax.tree.leaves(own.hyperparams)[0].sharding
    varied = {name: jax.device_put(jnp.float32(value), device) for name, value in values.items()}
    hyperparams = dataclasses.replace(moved.hyperparams, **varied)
    return dataclasses.replace(moved, hyperparams=hyperparams, **of_environments)
