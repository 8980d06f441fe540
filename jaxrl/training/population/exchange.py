"""Population based training (Jaderberg et al. 2017): the worst go on as varied copies of the best."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.evaluation.result import Result
from jaxrl.metrics.files import replace_text
from jaxrl.training.population.rendezvous import Rendezvous
from jaxrl.training.trainer import Trainer
from jaxrl.types import LearnerState, Sharded, marks

# Of the population: who is replaced, and by whom.
_SHARE = 0.25
# How a copied value changes: drawn anew with this probability, else multiplied by one of the factors.
_RESAMPLED, _FACTORS = 0.25, (0.8, 1.2)


@dataclass(frozen=True)
class Range:
    """The values that a hyperparameter may take; `is_log` draws uniformly in the logarithm."""

    low: float
    high: float
    is_log: bool = False

    def varied(self, value: float, rng: np.random.Generator) -> float:
        """`value` times 0.8 or 1.2 within the range, or another draw from it."""
        if rng.random() >= _RESAMPLED:
            return float(np.clip(value * rng.choice(_FACTORS), self.low, self.high))
        if self.is_log:
            return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return float(rng.uniform(self.low, self.high))


@dataclass(frozen=True)
class Candidate:
    """A member at an evaluation."""

    score: float
    learner: LearnerState


class Exchange:
    """Lets members exchange what they have learnt, after each evaluation but the last.

    The bottom quarter by mean return takes over parameters, optimiser, statistics and hyperparameters of
    members drawn from the top quarter, the hyperparameters varied. What is drawn depends on `seed` and the
    step alone, so a population that is resumed repeats it.
    """

    def __init__(self, members: Sequence[str], ranges: Mapping[str, Range], seed: int, lineage: Path) -> None:
        """Exchanges nothing yet.

        Args:
          members: their names.
          ranges: by the name of the hyperparameter; the others are copied as they are.
          seed: of what is drawn.
          lineage: file to which each copy is added as a JSON line: step, member, source, both scores, values.
        """
        self._members, self._ranges, self._seed, self._lineage = members, ranges, seed, lineage

    def callback(self, member: int, rendezvous: Rendezvous) -> Callable[[Trainer, Result], None]:
        """What the trainer of a member calls after an evaluation."""

        def take_part(trainer: Trainer, result: Result) -> None:
            if trainer.progress.iteration >= trainer.config.num_iterations:
                return
            asked = trainer.steps, Candidate(result.mean, trainer.state.learner)
            learner = rendezvous.ask(member, self.serve, asked)
            if learner is not None:
                trainer.adopt(learner)

        return take_part

    def rewind(self, step: int) -> None:
        """Forgets the copies after `step`, from which the population is resumed."""
        if self._lineage.exists():
            lines = self._lineage.read_text().splitlines(keepends=True)
            replace_text(self._lineage, "".join(line for line in lines if json.loads(line)["step"] <= step))

    def serve(self, asked: Mapping[int, tuple[int, Candidate]]) -> dict[int, LearnerState | None]:
        """Answers each member with what it goes on with; None where that is its own."""
        step = next(iter(asked.values()))[0]
        found = {member: candidate for member, (_, candidate) in asked.items()}
        ranked = sorted(found, key=lambda member: (found[member].score, member))
        count = max(1, int(_SHARE * len(ranked))) if len(ranked) > 1 else 0
        rng = np.random.default_rng([self._seed, step])
        answers: dict[int, LearnerState | None] = dict.fromkeys(found)
        lines = []
        for loser in ranked[:count]:
            winner = ranked[-1 - int(rng.integers(count))]
            values = self._values(found[winner].learner, rng)
            answers[loser] = _copy(found[winner].learner, found[loser].learner, values)
            scores = {"score": found[loser].score, "source_score": found[winner].score}
            names = {"member": self._members[loser], "source": self._members[winner]}
            lines.append({"step": step, **names, **scores, "values": values})
        with self._lineage.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        return answers

    def _values(self, learner: LearnerState, rng: np.random.Generator) -> dict[str, float]:
        """The hyperparameters of a copy, those that may vary."""
        own = {name: float(getattr(learner.hyperparams, name)) for name in self._ranges}
        return {name: self._ranges[name].varied(value, rng) for name, value in own.items()}


def _copy(source: LearnerState, own: LearnerState, values: Mapping[str, float]) -> LearnerState:
    """The source on the device of `own`, with these hyperparameters; what belongs to environments stays."""
    moved: LearnerState = jax.tree.map(lambda new, old: jax.device_put(new, old.sharding), source, own)
    of_environments = {name: getattr(own, name) for name in marks(type(own), Sharded)}
    device = jax.tree.leaves(own.hyperparams)[0].sharding
    varied = {name: jax.device_put(jnp.float32(value), device) for name, value in values.items()}
    hyperparams = dataclasses.replace(moved.hyperparams, **varied)
    return dataclasses.replace(moved, hyperparams=hyperparams, **of_environments)
