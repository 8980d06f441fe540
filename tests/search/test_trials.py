"""The records of trials, what they are judged by, and the loop, with runs that are no processes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from jaxrl.config import ConfigError, check_config
from jaxrl.config.errors import RunError
from jaxrl.config.files import load_config
from jaxrl.runs.child_process import reason
from jaxrl.runs.executor import Ending, Executor, PlannedRun
from jaxrl.runs.signals import Interruption
from jaxrl.search.runner import SearchDisplay, TrialRunner, describe
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.study import LocalStudy, RandomSampler
from jaxrl.search.trials import DONE, FAILED, RUNNING, Objective, StudyTrial, Task, TrialRecords
from jaxrl.search.winner import best_config, verify

SPACE = Space.parse({"ppo.learning_rate": {"log": [1e-4, 1e-2]}})


def test_records_survive_a_torn_line(tmp_path: Path) -> None:
    records = TrialRecords(tmp_path)
    assert records.read() == []
    records.append(StudyTrial(0, {"network.hidden_sizes": (8, 8)}))
    with (tmp_path / "trials.jsonl").open("a") as stream:
        stream.write('{"number": 1, "values": {"x"')  # a kill
    assert [trial.number for trial in records.read()] == [0]
    records.append(StudyTrial(0, {"network.hidden_sizes": (8, 8)}, DONE, 3.5))
    records.append(StudyTrial(1, {}))
    assert records.read() == [
        StudyTrial(0, {"network.hidden_sizes": (8, 8)}, DONE, 3.5),
        StudyTrial(1, {}, RUNNING),
    ]


def test_score_is_the_final_value_or_the_mean() -> None:
    curve = np.array([1.0, 2.0, 6.0])
    assert Objective().of(curve) == 6
    assert Objective(score="mean").of(curve) == 3
    assert Objective().of(np.array([1.0, math.nan])) is None
    assert Objective().of(np.array([])) is None
    trials = [StudyTrial(n, {}, DONE, score) for n, score in enumerate((2.0, 5.0, 5.0, 1.0))]
    assert [t.number for t in Objective().rank([*trials, StudyTrial(9, {}, FAILED)])] == [1, 2, 0, 3]
    assert [t.number for t in Objective(direction="minimize").rank(trials)] == [3, 0, 1, 2]


class InstantExecutor(Executor):
    """Runs end at once: the return is that of a landscape over learning rates, and noise by the seed."""

    reason = "out of memory: it asked for 99 GB"

    def __init__(self, failing: Sequence[str] = (), locked: Sequence[str] = (), metric: str = "eval/return"):
        self.failing, self.locked, self.metric = failing, list(locked), metric
        self.endings: list[Ending] = []
        self.started: list[str] = []

    def room(self) -> int:
        return 1 - len(self.endings)

    def start(self, runs: Sequence[PlannedRun]) -> list[str]:
        (run,) = runs
        if run.name in self.locked:
            self.locked.remove(run.name)
            return []
        self.started.append(run.name)
        run.folder.mkdir(parents=True, exist_ok=True)
        config = run.config
        rate = json.loads(json.dumps(config.learner.learning_rate))  # type: ignore[attr-defined]
        score = 100 - abs(math.log10(rate) + 3) + (10 if config.seed == 0 else 0)  # luck of the trials' seed
        row = {"step": 10, self.metric: score, "time/budget_seconds": 2.0}
        if run.name not in self.failing:
            (run.folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
            (run.folder / "summary.json").write_text("{}")
        reason = self.reason if run.name in self.failing else ""
        self.endings.append(Ending(run.name, reason))
        return [run.name]

    def poll(self) -> list[Ending]:
        endings, self.endings = self.endings, []
        return endings

    def stop(self, name: str) -> None:
        raise AssertionError(f"{name} was stopped")

    def close(self) -> None:
        self.endings.clear()


def searched(
    folder: SearchFolder, executor: Executor, trials: int = 4, metric: str = "eval/return"
) -> tuple[Task, list[StudyTrial], bool]:
    task = Task(load_config("ppo_mlp"), SPACE, SearchOptions(metric=metric, verify=2))
    study = LocalStudy(TrialRecords(folder.path), RandomSampler(task), trials)
    display = SearchDisplay("a search", trials, 1, task.objective)
    alone = TrialRunner(task, study, executor, folder, display, Interruption()).run()
    return task, study.trials(), alone


def test_failed_trial_is_one_line_and_the_search_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, trials, alone = searched(SearchFolder(str(tmp_path)), InstantExecutor(failing=["1"]))
    assert alone
    assert [trial.state for trial in trials] == [DONE, FAILED, DONE, DONE]
    assert trials[1].reason == "out of memory: it asked for 99 GB"
    assert trials[0].seconds == 2.0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == describe(trials[0])
    assert lines[2].startswith("trial 1: failed: out of memory: it asked for 99 GB, ppo.learning_rate ")


@pytest.mark.slow
def test_a_full_disk_fails_no_trial(tmp_path: Path) -> None:
    whole = searched(SearchFolder(str(tmp_path / "whole")), InstantExecutor())[1]
    folder = SearchFolder(str(tmp_path / "full"))
    full = InstantExecutor(failing=["1"])
    full.reason = "the checkpoint 1/checkpoints/5 could not be written: No space left on device"
    with pytest.raises(RunError, match=r"^trial 1: .*: the disk of .* is full; with free space the same"):
        searched(folder, full)
    assert [trial.state for trial in TrialRecords(folder.path).read()] == [DONE, RUNNING]
    assert searched(folder, InstantExecutor())[1] == whole


def test_search_continues_where_it_was_killed(tmp_path: Path) -> None:
    whole = searched(SearchFolder(str(tmp_path / "whole")), InstantExecutor())[1]
    folder = SearchFolder(str(tmp_path / "killed"))
    records = TrialRecords(folder.path)
    for trial in (whole[0], StudyTrial(1, whole[1].values)):  # The second was running.
        records.append(trial)
    executor = InstantExecutor(locked=["1"])  # Its process is still saving when the search begins.
    assert searched(folder, executor)[1] == whole
    assert executor.started == ["2", "3", "1"]
    again = InstantExecutor()
    assert searched(folder, again)[1] == whole
    assert again.started == []
    assert len(searched(folder, InstantExecutor(), trials=6)[1]) == 6


def test_trial_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    mine, other = SearchFolder(str(tmp_path)), SearchFolder(str(tmp_path))
    given = check_config(load_config("ppo_mlp")), SPACE, SearchOptions()
    with mine.claim(*given):
        assert mine.is_alone()
        with other.claim(*given):
            assert not mine.is_alone()
            TrialRecords(mine.path).append(StudyTrial(0, {"ppo.learning_rate": 1e-3}))
            _, trials, alone = searched(mine, InstantExecutor(locked=["0"] * 9), trials=2)
        assert mine.is_alone()
    assert not alone
    assert [trial.state for trial in trials] == [RUNNING, DONE]
    with mine.claim_verification() as first, other.claim_verification() as second:
        assert (first, second) == (True, False)


def test_metric_that_no_run_logs_ends_the_search(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`--metric`.*no eval/retrun; did you mean `eval/return`"):
        searched(SearchFolder(str(tmp_path)), InstantExecutor(), metric="eval/retrun")


def test_folder_keeps_to_one_search(tmp_path: Path) -> None:
    config = check_config(load_config("ppo_mlp"))
    folder = SearchFolder(str(tmp_path))
    with folder.claim(config, SPACE, SearchOptions()):
        TrialRecords(folder.path).append(StudyTrial(0, {}))
    with folder.claim(config, SPACE, SearchOptions(trials=50, jobs=2, verify=0)):
        pass
    other = Space.parse({"ppo.learning_rate": {"log": [1e-4, 1e-1]}})
    with (
        pytest.raises(ConfigError, match="another options and space"),
        folder.claim(config, other, SearchOptions(seed=1)),
    ):
        pass


def test_a_population_that_exchanges_keeps_its_size(tmp_path: Path) -> None:
    # Later members would exchange among themselves, and what the first have taken over be forgotten.
    config = check_config(load_config("ppo_mlp"))
    folder = SearchFolder(str(tmp_path))
    for size in (None, 16):  # the default
        with folder.claim(config, SPACE, SearchOptions(method="pbt", trials=size)):
            TrialRecords(folder.path).append(StudyTrial(0, {}))
    with (
        pytest.raises(ConfigError, match="another options"),
        folder.claim(config, SPACE, SearchOptions(method="pbt", trials=32)),
    ):
        pass


@pytest.mark.slow
def test_winner_is_verified_with_fresh_seeds(tmp_path: Path) -> None:
    folder, executor = SearchFolder(str(tmp_path)), InstantExecutor()
    task, trials, _ = searched(folder, executor)
    ranked = task.objective.rank(trials)

    def verified() -> list[tuple[int, float]]:
        found = verify(ranked, task, folder, executor, Interruption(), print)
        assert [v.seeds for v in found] == [(101, 102)] * 3
        return [(v.trial.number, v.score) for v in found]

    # Every searched score has 10 too much, so that each of the next looks better than the best verified one.
    expected = [(t.number, pytest.approx((t.score or 0) - 10)) for t in ranked[:3]]
    assert verified() == expected
    count = len(executor.started)
    assert verified() == expected
    assert len(executor.started) == count, "finished runs are not repeated"


def test_best_config_is_a_config_file(tmp_path: Path) -> None:
    task = Task(load_config("ppo_mlp"), SPACE, SearchOptions())
    trial = StudyTrial(5, {"ppo.learning_rate": 0.0012345678901234567}, DONE, 487.5)
    file = tmp_path / "best_config.py"
    file.write_text(best_config(trial, None, task))
    assert "final eval/return 487.5" in file.read_text()
    assert check_config(load_config(str(file))) == check_config(SPACE.apply(task.config, trial.values))


def test_line_counts_trials_and_says_what_is_left() -> None:
    display = SearchDisplay("a search", 6, jobs=2, objective=Objective(), stream=io.StringIO())
    trials = [StudyTrial(0, {}, DONE, 3.0), StudyTrial(1, {}, FAILED), StudyTrial(2, {})]
    assert display.line(trials) == "1 of 6 trials done, 1 running, 0 pruned, 1 failed, best 3.000 (trial 0)"
    display.show_end(trials[0], 20.0)
    display.show_end(trials[1], 10.0)
    # Four of 15 seconds each, two at a time.
    assert display.line(trials).endswith(", 0:30 left")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "radnom"}, "did you mean `random`?"),
        ({"score": "last"}, "`score` (='last')"),
        ({"direction": "maximise"}, "did you mean `maximize`?"),
        ({"trials": 0}, "`trials` (=0) must be at least 1"),
        ({"jobs": 0}, "`jobs` (=0) must be at least 1"),
        ({"metric": ""}, "`metric` (='') must be a key"),
    ],
)
def test_bad_option_is_one_line(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SearchOptions(**options)  # type: ignore[arg-type]
    assert text in str(raised.value)


@pytest.mark.slow
def test_search_without_a_finished_trial_says_why(tmp_path: Path) -> None:
    from jaxrl.search.optimization import search

    config = load_config("ppo_mlp")
    options = SearchOptions(trials=1, workdir=str(tmp_path))
    TrialRecords(tmp_path).append(StudyTrial(0, {"ppo.learning_rate": 1e-3}, FAILED, reason="a NaN in it"))
    with pytest.raises(RunError, match="no trial of .* reached its end; trial 0 failed: a NaN in it"):
        search(config, SPACE, options, Interruption())


@pytest.mark.parametrize(
    ("code", "output", "said"),
    [
        (1, "evaluating\n", "exit code 1"),
        (-11, "training\nevaluating\n", "killed by SIGSEGV"),
        (139, "evaluating\n", "killed by SIGSEGV"),
        (1, "Traceback\n  File x\nValueError: no luck\nevaluating\n", "exit code 1: ValueError: no luck"),
        (-6, "Fatal Python error: Aborted\n  File x\n", "killed by SIGABRT: Fatal Python error: Aborted"),
        (2, "error: no such field\n", "no such field"),
    ],
)
def test_the_reason_of_a_crash(tmp_path: Path, code: int, output: str, said: str) -> None:
    (tmp_path / "log").write_text(output)
    assert reason(code, tmp_path / "log") == said
