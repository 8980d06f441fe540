"""Studies that optuna keeps: proposals, pruning, continuation, and one study shared by two folders."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError
from jaxrl.config.files import load_config
from jaxrl.search.optuna_study import OptunaStudy
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.trials import DONE, FAILED, PRUNED, StudyTrial, Task

SPACE = Space.parse(
    {
        "ppo.learning_rate": {"log": [1e-4, 1e-2]},
        "ppo.num_epochs": {"int": [1, 8]},
        "network.hidden_sizes": {"choice": [[8], [8, 8]]},
    }
)
STEPS = 1000


def study(folder: Path, kind: type[Task] = Task, **options: Any) -> OptunaStudy:
    pytest.importorskip("optuna")
    config = load_config("ppo_mlp")
    config.stop.steps = STEPS
    chosen = SearchOptions(method="optuna", **({"trials": 6} | options))
    return OptunaStudy(kind(config, SPACE, chosen), SearchFolder(str(folder)))


def proposed(of: OptunaStudy) -> StudyTrial:
    trial = of.propose()
    assert trial is not None
    return trial


def ended(trial: StudyTrial, score: float | None, state: str = DONE, reason: str = "") -> StudyTrial:
    return StudyTrial(trial.number, trial.values, state, score, 1.0, reason)


def test_study_without_optuna_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    task = Task(load_config("ppo_mlp"), SPACE, SearchOptions(method="optuna"))
    with pytest.raises(ConfigError, match="needs the `optuna` extra: .*pip install"):
        OptunaStudy(task, SearchFolder(str(tmp_path)))


def test_options_of_optuna_are_for_optuna() -> None:
    with pytest.raises(ConfigError, match="`sampler` .='gp'. is for the method optuna"):
        SearchOptions(sampler="gp")
    with pytest.raises(ConfigError, match="did you mean `asha`"):
        SearchOptions(method="optuna", pruner="ahsa")


def test_sampler_that_needs_a_missing_package_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ConfigError, match="`--sampler` .='gp'. needs torch: pip install torch"):
        study(tmp_path, sampler="gp")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_trials_are_proposed_until_there_are_enough(tmp_path: Path, sampler: str) -> None:
    first = study(tmp_path, sampler=sampler)
    for score in range(3):
        first.finish(ended(proposed(first), float(score)))
    failed = proposed(first)
    first.finish(ended(failed, None, FAILED, "out of memory"))
    running = proposed(first)
    # A process that was killed left one trial running; another continues the study.
    again = study(tmp_path, sampler=sampler)
    assert [t.number for t in again.trials() if not t.ended] == [running.number]
    again.finish(ended(running, 7.0))
    again.finish(ended(proposed(again), 8.0))
    assert again.propose() is None
    trials = again.trials()
    assert [t.state for t in trials] == [DONE] * 3 + [FAILED] + [DONE] * 2
    assert trials[3].reason == "out of memory"
    assert len({t.values["ppo.learning_rate"] for t in trials}) == 6, "no process repeats a point"
    assert all(isinstance(t.values["ppo.num_epochs"], int) for t in trials)
    assert {t.values["network.hidden_sizes"] for t in trials} <= {(8,), (8, 8)}
    assert trials == study(tmp_path, sampler=sampler).trials()


def test_gaussian_process_learns_from_ten_trials(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = study(tmp_path, sampler="gp", trials=13)
    for _ in range(10):  # Random ones, of which higher learning rates are better.
        trial = proposed(made)
        made.finish(ended(trial, math.log(trial.values["ppo.learning_rate"])))
    best = max(trial.values["ppo.learning_rate"] for trial in made.trials())
    for _ in range(3):
        trial = proposed(made)
        made.finish(ended(trial, math.log(trial.values["ppo.learning_rate"])))
        assert trial.values["ppo.learning_rate"] > best / 2


def test_values_that_do_not_fit_together_are_never_proposed(tmp_path: Path) -> None:
    class OfThree(Task):
        def problem(self, values: Any) -> str:
            return "" if values["ppo.num_epochs"] == 3 else "it must be 3"

    made = study(tmp_path, OfThree)
    assert [proposed(made).values["ppo.num_epochs"] for _ in range(6)] == [3] * 6
    assert made.propose() is None


@pytest.mark.parametrize("pruner", ["median", "asha", "hyperband"])
def test_hopeless_trial_is_stopped_after_its_grace(tmp_path: Path, pruner: str) -> None:
    made = study(tmp_path, pruner=pruner, trials=40)
    for _ in range(12):
        good = proposed(made)
        for step in range(100, STEPS, 100):
            made.should_prune(good, step, 100.0)
        made.finish(ended(good, 100.0))
    stopped = []
    for _ in range(6):  # Hyperband leaves those of one bracket alone.
        bad = proposed(made)
        assert not made.should_prune(bad, STEPS // 20 - 10, 0.0), "before a twentieth of the steps"
        stopped.append(any(made.should_prune(bad, step, 0.0) for step in range(100, STEPS, 100)))
        made.finish(ended(bad, 0.0, PRUNED if stopped[-1] else DONE))
    assert any(stopped)
    assert all(stopped) or pruner == "hyperband"
    assert sum(t.state == PRUNED for t in made.trials()) == sum(stopped)


@pytest.mark.parametrize("storage", ["shared.journal", "sqlite:///{folder}/shared.db"])
def test_two_folders_share_one_study(tmp_path: Path, storage: str) -> None:
    place = storage.format(folder=tmp_path) if "://" in storage else str(tmp_path / storage)
    one, other = (study(tmp_path / name, storage=place) for name in ("one", "other"))
    for number, mine in zip(range(6), itertools.cycle((one, other)), strict=False):
        trial = proposed(mine)
        assert trial.number == number
        mine.finish(ended(trial, float(number)))
    assert one.propose() is None
    assert [t.score for t in one.trials()] == [0, 1, 2, 3, 4, 5]
    assert [t.here for t in one.trials()] == [True, False] * 3
    assert [t.values for t in one.trials()] == [t.values for t in other.trials()]
    points = {t.values["ppo.learning_rate"] for t in one.trials()}
    assert len(points) == 6


def test_two_processes_may_make_the_same_database_at_once(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_join, args=(tmp_path, str(n))) for n in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]


def _join(folder: Path, name: str) -> None:
    while not (folder / "go").exists() and name != "0":
        time.sleep(0.001)
    (folder / "go").touch()
    study(folder / name, storage=f"sqlite:///{folder}/shared.db")


@pytest.mark.parametrize("storage", ["nosuch://host/study", "sqlite:////nowhere/at/all/study.db"])
def test_storage_that_cannot_be_used_is_one_line(tmp_path: Path, storage: str) -> None:
    with pytest.raises(ConfigError, match="`--storage` .* cannot be used") as raised:
        study(tmp_path, storage=storage)
    assert "\n" not in str(raised.value)
