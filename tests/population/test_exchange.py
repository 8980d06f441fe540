"""Population based training: who copies whom, what a copy is, and that a resume repeats it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl.config.sections import GREEDY, SAMPLED
from jaxrl.evaluation.during_training import Evaluation
from jaxrl.evaluation.result import Result, add_means, deciding_mode
from jaxrl.experience.episodes import Episodes
from jaxrl.parallel.sharding import Topology
from jaxrl.population.exchange import Candidate, Exchange, Range
from jaxrl.population.members import Conditions, Member, train_members
from jaxrl.reporting.writers import MultiWriter
from jaxrl.reporting.writers.population import PopulationRows
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.search.population import with_last_values
from jaxrl.search.trials import DONE, Objective, StudyTrial
from jaxrl.training.trainer import Trainer
from tests.algorithms.tiny import STEPS, assert_equal, copied
from tests.algorithms.tiny import tiny_config as tiny_algorithm
from tests.programs.test_make_train import tiny_config

RATE = {"learning_rate": Range(1e-4, 1e-1, is_log=True)}


def test_values_stay_in_their_range_and_vary_as_published() -> None:
    rng, found = np.random.default_rng(0), Range(1.0, 100.0, is_log=True)
    varied = np.array([found.vary(10.0, rng) for _ in range(4000)])
    assert varied.min() >= 1.0
    assert varied.max() <= 100.0
    multiplied = np.isin(varied, (8.0, 12.0))
    assert abs(multiplied.mean() - 0.75) < 0.03
    drawn = np.log10(varied[~multiplied])
    assert abs(drawn.mean() - 1.0) < 0.05  # uniform between 0 and 2
    assert all(Range(1.0, 2.0).vary(2.0, rng) <= 2.0 for _ in range(20))


def learner(rate: float) -> Any:
    trainer = Trainer(tiny_config(**{"ppo.learning_rate": rate, "seed": int(rate * 1e4)}))
    return trainer.state.learner


@pytest.mark.slow
def test_the_bottom_quarter_goes_on_as_the_top_quarter(tmp_path: Path) -> None:
    exchange = Exchange("abcd", RATE, 0, tmp_path / "lineage.jsonl")
    learners = [learner(rate) for rate in (1e-3, 2e-3, 3e-3, 4e-3)]
    # By score: 2 is the worst, 0 the best.
    scores = dict(zip(range(4), (9.0, 3.0, 1.0, 5.0), strict=True))
    asked = {i: (512, Candidate(scores[i], learners[i])) for i in range(4)}
    answers = exchange.choose(asked)
    assert [i for i, answer in answers.items() if answer is not None] == [2]
    copy, source = answers[2], learners[0]
    assert copy is not None
    np.testing.assert_array_equal(*(flat(each.policy.params) for each in (copy, source)))
    np.testing.assert_array_equal(copy.discounted_return, learners[2].discounted_return)
    assert float(copy.hyperparams.gamma) == float(source.hyperparams.gamma)
    assert float(copy.hyperparams.learning_rate) != float(source.hyperparams.learning_rate)
    (line,) = map(json.loads, (tmp_path / "lineage.jsonl").read_text().splitlines())
    assert (line["step"], line["member"], line["source"], line["source_score"]) == (512, "c", "a", 9.0)
    assert line["values"]["learning_rate"] == pytest.approx(float(copy.hyperparams.learning_rate))
    again = exchange.choose(asked)[2]
    assert again is not None
    assert float(again.hyperparams.learning_rate) == float(copy.hyperparams.learning_rate)


@pytest.mark.slow
def test_only_a_better_member_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "lineage.jsonl"
    exchange = Exchange("abcd", RATE, 0, file)
    learners = [learner(rate) for rate in (1e-3, 2e-3, 3e-3, 4e-3)]

    def losers(step: int, *scores: float) -> list[int]:
        asked = {i: (step, Candidate(score, learners[i])) for i, score in enumerate(scores)}
        return [i for i, answer in exchange.choose(asked).items() if answer is not None]

    assert all(losers(step, 500.0, 500.0, 500.0, 500.0) == [] for step in range(64))
    assert file.read_text() == ""
    # Of equally bad members it is not always the same one, and first the one whose values are the newest.
    lost = [losers(step, 5.0, 5.0, 5.0, 9.0) for step in range(64, 80)]
    assert len({tuple(each) for each in lost}) == 1
    assert lost[0] in ([0], [1], [2])
    firsts = set()
    for step in range(100, 120):
        file.unlink()
        firsts |= set(losers(step, 5.0, 5.0, 5.0, 9.0))
    assert firsts == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_the_worst(score: float, tmp_path: Path) -> None:
    exchange = Exchange("abcd", RATE, 0, tmp_path / "lineage.jsonl")
    learners = [learner(rate) for rate in (1e-3, 2e-3, 3e-3, 4e-3)]
    for step in range(4):
        scores = [9.0, 5.0, 3.0]
        scores.insert(step, score)
        asked = {i: (step, Candidate(each, learners[i])) for i, each in enumerate(scores)}
        assert [i for i, answer in exchange.choose(asked).items() if answer is not None] == [step]
    lines = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert [(line["score"], line["source_score"]) for line in lines] == [(None, 9.0)] * 4


@pytest.mark.slow
def test_the_mode_of_a_copy_is_not_chosen_by_the_policy_before_it() -> None:
    """Returns before the copy were higher with sampled actions, those of the copy are with greedy ones."""
    run = Trainer(tiny_config())._run
    for _ in range(3):
        run.record_evaluation(evaluation(greedy=-200.0, sampled=-100.0))
    run.adopt(run.state.learner)
    recent = add_means(run.progress.recent_returns, {GREEDY: 100.0, SAMPLED: 50.0})
    assert deciding_mode(recent) == GREEDY


def evaluation(greedy: float, sampled: float) -> Evaluation:
    def result(mode: str, mean: float) -> Result:
        return Result.of(Episodes(*(np.array([[x]]) for x in (mean, 1, True, True))), mode)

    return Evaluation({GREEDY: result(GREEDY, greedy), SAMPLED: result(SAMPLED, sampled)}, SAMPLED, {}, {})


def test_of_equal_trials_the_longest_held_values_win(tmp_path: Path) -> None:
    trials = [StudyTrial(number, {}, DONE, 500.0) for number in range(4)]
    values = {"values": {"learning_rate": 1e-3}}
    lines = [{"member": str(member), "step": step} | values for member, step in ((0, 64), (1, 128), (0, 192))]
    (tmp_path / "lineage.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ranked = Objective().rank(with_last_values(trials, tiny_config(), tmp_path))
    assert [trial.number for trial in ranked] == [2, 3, 1, 0]


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def watch(exchange: Exchange) -> dict[int, list[tuple[Any, Any]]]:
    """What each member has before and after it takes part; the one with the higher number is the better."""
    records: dict[int, list[tuple[Any, Any]]] = {0: [], 1: []}
    callbacks = exchange.callbacks

    def with_record(member: int, take_part: Callable[[Trainer, Result], None]) -> Any:
        def record(trainer: Trainer, result: Result) -> None:
            before = copied((trainer.state.learner, trainer.state.memory))
            take_part(trainer, dataclasses.replace(result, mean=float(member)))
            records[member].append((before, copied((trainer.state.learner, trainer.state.memory))))

        return record

    def with_records(*arguments: Any) -> Any:
        return [with_record(i, each) for i, each in enumerate(callbacks(*arguments))]

    exchange.callbacks = with_records  # type: ignore[method-assign]
    return records


@pytest.mark.slow
def test_a_memory_stays_with_its_member(tmp_path: Path) -> None:
    settings = {"evaluate__every_steps": 2 * STEPS, "stop__steps": 4 * STEPS, "learner__prioritised": True}
    members = []
    for seed in range(2):
        config = tiny_algorithm("dqn", **settings, seed=seed)
        members.append(Member(f"seed_{seed}", config, RunFolder(str(tmp_path / f"seed_{seed}"), 1)))
    exchange = Exchange(["a", "b"], RATE, 0, tmp_path / "lineage.jsonl")
    records = watch(exchange)
    rows = PopulationRows(2, MultiWriter(()))
    endings = train_members(members, rows, Conditions(Topology.of(1), Interruption()), exchange)
    assert [ending.error for ending in endings] == ["", ""]
    ((own, memory), (learner, kept)), ((other, others), after) = (records[i][0] for i in range(2))
    for name in ("policy", "opt_state", "target", "updates"):
        assert_equal(getattr(learner, name), getattr(other, name))
    assert (flat(own.policy.params) != flat(other.policy.params)).any()
    assert_equal(kept, memory)
    for name in ("obs", "action", "reward"):
        assert (kept.rows[name] != others.rows[name]).any()
    assert (kept.tree.leaf != others.tree.leaf).any()
    assert_equal(after, (other, others))
