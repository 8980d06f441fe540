"""Which runs are one variant, what it is called, and what does not compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxrl.comparison import problems, tables, variants_of
from jaxrl.comparison.results import Options, compare
from jaxrl.config import ConfigError
from jaxrl.runs import records
from jaxrl.runs.records import Run
from tests.comparison.run_folders import write_run


def read(*folders: Path) -> list[Run]:
    return [records.read(str(folder)) for folder in folders]


def test_seeds_of_one_configuration_are_one_variant(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{rate}-{s}", [1], s, rate=rate) for rate in (0.1, 0.2) for s in (0, 1)]
    first, second = variants_of(read(*runs), pool=False)
    assert (first.name, second.name) == ("learning_rate=0.1", "learning_rate=0.2")
    assert first.differs == {"ppo.learning_rate": 0.1}
    assert [run.path for run in first.runs] == [str(runs[0]), str(runs[1])]
    assert problems([first, second], pool=False) == []


def test_how_a_run_logs_does_not_set_it_apart(tmp_path: Path) -> None:
    first, second = read(write_run(tmp_path / "a", [1]), write_run(tmp_path / "b", [1], 1))
    # The address of its copy is each run's own.
    for field, value in (("log.every_steps", 7), ("storage.sync_to", "s3://b/1"), ("host.num_workers", 4)):
        other = Run(second.path, {**second.config, field: value}, second.rows, second.summary)
        assert len(variants_of([first, other], pool=False)) == 1


def test_runs_that_were_evaluated_differently_are_apart(tmp_path: Path) -> None:
    first, second = read(write_run(tmp_path / "a", [1]), write_run(tmp_path / "b", [1], 1))
    for field, value in (("evaluate.modes", ["sampled"]), ("evaluate.episodes", 7)):
        other = Run(second.path, {**second.config, field: value}, second.rows, second.summary)
        found = variants_of([first, other], pool=False)
        assert [variant.differs[field] for variant in found] == [first.config[field], value]
        assert len(variants_of([first, other], pool=False, metric="episode/return")) == 1
    other = Run(second.path, {**second.config, "evaluate.unseen": "x"}, second.rows, second.summary)
    assert len(variants_of([first, other], pool=False)) == 1
    for metric in ("eval/unseen_return", "eval/greedy/unseen_return"):
        assert len(variants_of([first, other], pool=False, metric=metric)) == 2
    other = Run(second.path, {**second.config, "evaluate.suite": "x"}, second.rows, second.summary)
    for metric, count in (("eval/return", 1), ("eval/all/success_rate", 2), ("eval/sampled/all/steps", 2)):
        assert len(variants_of([first, other], pool=False, metric=metric)) == count


def test_the_table_of_runs_has_both_modes_of_their_evaluations(tmp_path: Path) -> None:
    first, second = read(write_run(tmp_path / "a", [10.0]), write_run(tmp_path / "b", [30.0], 1))
    row = {"step": 1000, "eval/greedy/return": 12.5, "eval/sampled/return": 30.0}
    both = Run(second.path, second.config, [*second.rows, row], second.summary)
    found = compare(variants_of([first, both], pool=False), [], Options(resamples=10))
    table = tables.runs(found)
    assert table.headings[-3:] == ("final return", "greedy", "sampled")
    assert [row[-3:] for row in table.rows] == [("10.00", "-", "-"), ("30.00", "12.50", "30.00")]
    alone = compare(variants_of([first], pool=False), [], Options(resamples=10))
    assert tables.runs(alone).headings[-1] == "final return"


def test_a_field_that_an_older_run_lacks_has_its_default(tmp_path: Path) -> None:
    first, second = read(write_run(tmp_path / "a", [1]), write_run(tmp_path / "b", [1], 1))
    older = {name: x for name, x in second.config.items() if name != "ppo.max_grad_norm"}
    second = Run(second.path, older, second.rows, second.summary)
    assert len(variants_of([first, second], pool=False)) == 1


def test_a_former_field_that_is_a_constant_does_not_set_an_older_run_apart(tmp_path: Path) -> None:
    first, second = read(write_run(tmp_path / "a", [1]), write_run(tmp_path / "b", [1], 1))
    for value, count in ((100_000, 1), (50_000, 2)):
        config = {**second.config, "dqn.priority_beta_draws": value}
        older = Run(second.path, config, second.rows, second.summary)
        assert len(variants_of([first, older], pool=False)) == count


def test_many_differences_go_by_their_folders_or_numbers(tmp_path: Path) -> None:
    changes = dict.fromkeys(("network.core", "network.encoder"), "something else altogether")

    def names(*folders: str) -> list[str]:
        first, second = read(*(write_run(tmp_path / folder, [1]) for folder in folders))
        second = Run(second.path, {**second.config, **changes}, second.rows, second.summary)
        return [variant.name for variant in variants_of([first, second], pool=False)]

    assert names("small", "large") == ["small", "large"]
    assert names("small/0", "large/0") == ["variant 1", "variant 2"]


def test_what_does_not_compare(tmp_path: Path) -> None:
    runs = read(
        write_run(tmp_path / "a", [1, 2]),
        write_run(tmp_path / "b", [1, 2, 3], 1, finished=False),
        write_run(tmp_path / "c", [1, 2], env="gymnax:Acrobot-v1"),
        write_run(tmp_path / "d", [1, 2], env="gymnax:Acrobot-v1"),
    )
    found = "\n".join(problems(variants_of(runs, pool=False), pool=False))
    assert "the environments differ: gymnax:Acrobot-v1, gymnax:CartPole-v1" in found
    assert "the budgets differ: stop.steps is 2,000 and 3,000" in found
    assert f"{tmp_path / 'b'} is not finished: 3,000 of 3,000 steps" in found
    assert "has 2 runs of seed 0 on gymnax:Acrobot-v1" in found


def test_wrappers_are_part_of_the_environment(tmp_path: Path) -> None:
    first, second = read(write_run(tmp_path / "a", [1]), write_run(tmp_path / "b", [1], 1))
    wrapped = {**second.config, "env.wrappers": ["sticky_actions"]}
    second = Run(second.path, wrapped, second.rows, second.summary)
    (problem,) = problems(variants_of([first, second], pool=False), pool=False)
    assert problem.endswith("gymnax:CartPole-v1, gymnax:CartPole-v1 + sticky_actions")


def test_a_folder_that_was_trained_in_before(tmp_path: Path) -> None:
    (run,) = read(write_run(tmp_path / "a", [1, 2, 3]))
    shorter = {**run.config, "stop.steps": 1000, "derived.num_iterations": 10}
    run = Run(run.path, shorter, run.rows, run.summary)
    (problem,) = problems(variants_of([run], pool=False), pool=False)
    assert "made 3,000 steps, more than its budget of 1,000" in problem


def test_pooled_environments_must_be_complete(tmp_path: Path) -> None:
    runs = read(
        write_run(tmp_path / "a", [1]),
        write_run(tmp_path / "b", [1], env="gymnax:Acrobot-v1"),
        write_run(tmp_path / "c", [1], rate=0.5),
    )
    variants = variants_of(runs, pool=True)
    assert [len(variant.runs) for variant in variants] == [2, 1]
    assert problems(variants, pool=True) == ["learning_rate=0.5 has no run of gymnax:Acrobot-v1"]


def test_pooled_environments_have_equally_many_runs(tmp_path: Path) -> None:
    """The mean over all runs would be nearly that of CartPole, and another one for equal returns in each."""
    runs = [write_run(tmp_path / str(seed), [100], seed) for seed in range(3)]
    runs.append(write_run(tmp_path / "b", [1], env="gymnax:Acrobot-v1"))
    (problem,) = problems(variants_of(read(*runs), pool=True), pool=True)
    assert "has runs 1 of gymnax:Acrobot-v1, 3 of gymnax:CartPole-v1" in problem


def test_returns_of_other_environments_beat_none(tmp_path: Path) -> None:
    """Compared by force: each has runs in two of three environments, not the same two."""
    places = {0.1: ("CartPole-v1", "Acrobot-v1"), 0.2: ("Acrobot-v1", "MountainCar-v0")}
    runs = [
        write_run(tmp_path / f"{rate}-{name}-{seed}", [1, 2], seed, rate=rate, env=f"gymnax:{name}")
        for rate, names in places.items()
        for name in names
        for seed in (0, 1)
    ]
    variants = variants_of(read(*runs), pool=True)
    found = compare(variants, problems(variants, pool=True), Options(pool=True, resamples=10))
    assert [outcome.improvement for outcome in found.outcomes] == [None, None]
    with pytest.raises(ConfigError, match=r"`--threshold` \(=195\) must be from 0 to 1 with `--pool`"):
        compare(variants, [], Options(pool=True, threshold=195.0, resamples=10))
