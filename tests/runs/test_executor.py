"""Processes of trials that take too long, or do not end when asked to."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from jaxrl.config import check_config
from jaxrl.config.errors import ConfigError
from jaxrl.config.files import load_config
from jaxrl.runs import child_process, executor
from jaxrl.runs.child_process import DeviceShare, shares_of
from jaxrl.runs.executor import Ending, PlannedRun, ProcessExecutor
from jaxrl.search.search_options import SearchOptions

_DEAF = "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
_DEAF += "pathlib.Path(sys.argv[2].partition('=')[2] + '.ready').touch(); time.sleep(float(sys.argv[3]))"


@pytest.fixture
def run(tmp_path: Path) -> PlannedRun:
    return PlannedRun("3", check_config(load_config("ppo_mlp")), tmp_path / "3")


def deaf_for(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials ignore SIGTERM, and end by themselves."""
    monkeypatch.setattr(
        child_process, "command", lambda module, *flags: [sys.executable, "-c", _DEAF, *flags, str(seconds)]
    )


def start(executes: ProcessExecutor, run: PlannedRun) -> None:
    assert executes.start([run]) == ["3"]
    while not run.folder.with_suffix(".ready").exists():
        time.sleep(0.01)


def end_of(executes: ProcessExecutor) -> Ending:
    while not (endings := executes.poll()):
        time.sleep(0.01)
    (ending,) = endings
    return ending


def test_a_trial_that_hangs_is_stopped(run: PlannedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf_for(600, monkeypatch)
    monkeypatch.setattr(executor, "_KILL_AFTER_TIMEOUT", 0.1)
    executes = ProcessExecutor(1, timeout=0.2)
    start(executes, run)
    assert end_of(executes) == Ending("3", "it was stopped after 0.2 seconds (--trial_timeout)")


def test_a_trial_that_ends_in_time_has_not_failed(run: PlannedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    deaf_for(0, monkeypatch)
    executes = ProcessExecutor(1, timeout=60)
    start(executes, run)
    assert end_of(executes) == Ending("3", "")


def test_a_trial_that_is_asked_to_end_and_does_not_is_named(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf_for(0.4, monkeypatch)
    monkeypatch.setattr(child_process, "_ANSWER_SECONDS", 0.1)
    said: list[str] = []
    executes = ProcessExecutor(1, say=said.append)
    start(executes, run)
    executes.close()
    assert said == ["trial 3 has not ended yet: it may be saving, and is killed after 120 more seconds"]


def test_timeouts_are_for_trials_with_a_process_of_their_own() -> None:
    assert SearchOptions(trial_timeout=60.0).program_size(alike=True) == 1
    for options in ({"population": 4}, {"method": "pbt"}, {"method": "ray"}):
        with pytest.raises(ConfigError, match=r"^`trial_timeout` \(=60\) stops the process of a trial"):
            SearchOptions(trial_timeout=60.0, **options)
    with pytest.raises(ConfigError, match="`trial_timeout`"):
        SearchOptions(trial_timeout=0.0)


def test_shares_of_a_machine_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert shares_of(1, ["0", "1"]) == (DeviceShare(),)
    four = shares_of(4, ["0", "1"])
    assert [share.environment()["CUDA_VISIBLE_DEVICES"] for share in four] == ["0", "1", "0", "1"]
    assert {share.environment()["XLA_PYTHON_CLIENT_MEM_FRACTION"] for share in four} == {"0.45"}
    pairs = shares_of(2, ["0", "2", "4", "6"], 2)
    assert [(share.gpus, share.memory) for share in pairs] == [(("0", "2"), 0.9), (("4", "6"), 0.9)]
    assert DeviceShare().environment() == {}
    cores = [share.cores for share in shares_of(2, [])]
    assert len(cores[0]) == len(cores[1])
    assert not set(cores[0]) & set(cores[1])
