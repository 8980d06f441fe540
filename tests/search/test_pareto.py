"""The Pareto front, expected improvement, and a search by score and seconds against a random one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.config.files import load_config
from jaxrl.search.pareto import ParetoSampler, improvement, pareto_front
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.study import RandomSampler, Sampler
from jaxrl.search.trials import DONE, FAILED, RUNNING, Objective, StudyTrial, Task

SPACE = Space.parse(
    {
        "ppo.learning_rate": {"log": [1e-5, 1e-1]},
        "ppo.num_epochs": {"int": [1, 16]},
        "network.core": {"choice": ["lstm", "gru", "none"]},
    }
)


def task(seed: int = 0) -> Task:
    return Task(load_config("ppo_mlp"), SPACE, SearchOptions(seed=seed))


def test_front_is_what_nothing_quicker_beats() -> None:
    points = [(3.0, 5.0), (1.0, 2.0), (2.0, 1.0), (3.0, 6.0), (4.0, 6.0), (0.5, None)]
    trials = [StudyTrial(n, {}, DONE, score, seconds) for n, (seconds, score) in enumerate(points)]
    trials.append(StudyTrial(9, {}, FAILED, 99.0, 0.1))
    assert [t.number for t in pareto_front(trials, Objective())] == [1, 3]
    assert [t.number for t in pareto_front(trials, Objective(direction="minimize"))] == [1, 2]


def test_improvement_is_the_expectation() -> None:
    draws = np.random.default_rng(0).normal(size=400_000)
    for mean, deviation, known in ((0.0, 1.0, 0.5), (2.0, 0.5, 1.0), (-1.0, 2.0, 0.0)):
        expected = np.maximum(mean + deviation * draws - known, 0).mean()
        found = improvement(np.array([mean]), np.array([deviation]), known)[0]
        assert found == pytest.approx(expected, rel=0.02)
    assert improvement(np.array([3.0]), np.array([0.0]), 1.0)[0] == pytest.approx(2.0)


def test_search_without_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    monkeypatch.setitem(__import__("sys").modules, "sklearn.gaussian_process", None)
    with pytest.raises(ConfigError, match="needs the `search` extra: .*pip install"):
        ParetoSampler(task())


def outcome(values: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Score and seconds: epochs help less and less and cost in proportion; one rate and one core are best."""
    rate = math.log10(values["ppo.learning_rate"])
    core = {"lstm": 0.0, "gru": 0.3, "none": -0.3}[values["network.core"]]
    score = 1 - 0.25 * (rate + 3) ** 2 + core + 0.4 * math.log2(values["ppo.num_epochs"])
    return score + 0.05 * rng.normal(), 2.0 * values["ppo.num_epochs"]


def hypervolume(sampler: Sampler, count: int, seed: int) -> float:
    """The area between the front and score 0, over log2 of seconds up to 32."""
    rng, trials = np.random.default_rng(seed), list[StudyTrial]()
    for number in range(count):
        values = sampler.point(number, trials)
        assert values is not None
        score, seconds = outcome(values, rng)
        # Every ninth trial fails and the newest still runs.
        state = FAILED if number % 9 == 8 else DONE
        trials.append(StudyTrial(number, values, state, score if state == DONE else None, seconds))
        sampler.point(number + 1, [*trials, StudyTrial(number + 1, values, RUNNING)])
    area, corner = 0.0, 32.0
    for trial in reversed(pareto_front(trials, Objective())):
        area += max(trial.score or 0.0, 0.0) * (math.log2(corner) - math.log2(trial.seconds or 1.0))
        corner = trial.seconds or 1.0
    return area


@pytest.mark.slow
def test_proposals_improve_the_front_more_than_random_ones() -> None:
    pytest.importorskip("sklearn")
    areas = [
        (
            hypervolume(ParetoSampler(task(seed)), 30, seed),
            hypervolume(RandomSampler(task(seed)), 30, seed),
        )
        for seed in range(3)
    ]
    assert np.mean([a for a, _ in areas]) > 1.05 * np.mean([b for _, b in areas]), areas


def test_points_are_valid_and_depend_on_the_trials_alone() -> None:
    pytest.importorskip("sklearn")
    rng, trials = np.random.default_rng(0), list[StudyTrial]()

    class Odd(Task):
        def problem(self, values: Any) -> str:
            return "" if values["ppo.num_epochs"] % 2 else "an odd number"

    odd = Odd(load_config("ppo_mlp"), SPACE, SearchOptions())
    sampler = ParetoSampler(odd)
    for number in range(13):
        values = sampler.point(number, trials)
        assert values is not None
        assert values["ppo.num_epochs"] % 2
        assert values == ParetoSampler(odd).point(number, trials)
        trials.append(StudyTrial(number, values, DONE, *outcome(values, rng)))
