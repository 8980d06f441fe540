"""`jaxrl verify-checkpoint`: what it finds, how it says so and exits, and that it only reads."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl.commands.verify_checkpoint import main
from jaxrl.config import text
from jaxrl.evaluation.result import Result
from jaxrl.runs.checkpoint import Checkpointer
from tests.commands.refusals import refused
from tests.runs.checkpoint.checkpoints import abstract_of, files_of, flip_largest, save_run, state_at

EVALUATION = dict.fromkeys((field.name for field in dataclasses.fields(Result)), 1) | {
    "mean": -5.0,
    "mode": "greedy",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("original")
    save_run(run, 5, 10, evaluation=EVALUATION)
    return run


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def verify(run: Path, *arguments: str) -> int:
    return main(["jaxrl verify-checkpoint", f"--workdir={run}", *arguments])


def report(run: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = verify(run, "--json", *arguments)
    return code, json.loads(capsys.readouterr().out)


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {Path(entry["path"]).name: entry for entry in found["entries"]}


def test_intact_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(run)
    assert verify(run) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    size = sum(f.stat().st_size for f in (run / "checkpoints" / "5").rglob("*") if f.is_file())
    assert ["step", "iteration", "size", "arrays", "return", "state"] in lines
    assert ["5", "1", *text.size(size).split(), "30", "-5.000", "ok"] in lines
    assert "learner/opt_state (" in shown
    assert lines[-1] == ["2", "intact,", "0", "damaged"]
    assert files_of(run) == before

    code, found = report(run, capsys)
    assert code == 0
    assert found["ok"]
    entry = by_name(found)["10"]
    assert (entry["kind"], entry["problem"], entry["bad"]) == ("checkpoint", None, False)
    assert (entry["step"], entry["iteration"], entry["score"]) == (10, 2, -10.0)
    assert entry["evaluation"] == EVALUATION
    assert entry["arrays"]["learner/policy"] == 3
    assert entry["arrays"]["key"] == 1
    assert "collector/carry" not in entry["arrays"]  # is empty


def test_damaged_array_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_largest(run / "checkpoints" / "10")
    before = files_of(run)
    assert verify(run) == 1
    shown = capsys.readouterr().out
    problem = "damaged: the array learner/policy/params/head is not what was saved"
    assert f"{run / 'checkpoints' / '10'} is {problem}\n" in shown
    assert shown.endswith("1 intact, 1 damaged\n")
    assert files_of(run) == before  # nothing is set aside here

    code, found = report(run, capsys)
    assert code == 1
    assert not found["ok"]
    assert [by_name(found)[step]["bad"] for step in ("5", "10")] == [False, True]
    assert by_name(found)["10"]["iteration"] == 2  # its record is intact
    assert verify(run, "--step=5") == 0
    assert verify(run, "--step=10") == 1


def test_damaged_record_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / "10" / "meta" / "metadata").unlink()
    code, found = report(run, capsys)
    assert code == 1
    entry = by_name(found)["10"]
    assert "No such file or directory" in entry["problem"]
    assert "meta/metadata" in entry["problem"]
    assert (entry["step"], entry["arrays"]) == (10, {})
    assert entry["size"] > 0


def test_what_lies_beside_checkpoints_is_reported(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run / "checkpoints"
    flip_largest(folder / "10")
    checkpointer = Checkpointer(str(folder), keep=2)
    checkpointer.restore_latest(abstract_of(state_at(5)))
    checkpointer.close()
    shutil.copytree(folder / "5", folder / "15.orbax-checkpoint-tmp")
    (folder / "99").mkdir()
    (folder / "7").symlink_to("5")
    code, found = report(run, capsys)
    assert code == 0  # the run can go on from each of its checkpoints
    kinds = {name: (entry["kind"], entry["bad"]) for name, entry in by_name(found).items()}
    assert kinds == {
        "5": ("checkpoint", False),
        "10": ("set aside", False),
        "15.orbax-checkpoint-tmp": ("unfinished", False),
        "99": ("ignored", False),
        "7": ("ignored", False),
    }
    assert "learner/policy/params/head" in by_name(found)["10"]["problem"]
    assert verify(run) == 0
    assert "set aside" in capsys.readouterr().out

    (folder / "20").symlink_to(tmp_path)
    code, found = report(run, capsys)
    assert code == 1
    assert "20 is a symbolic link that leads out of the run" in by_name(found)["20"]["problem"]


def test_the_folder_may_be_the_only_argument(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jaxrl verify-checkpoint", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"checkpoints of {run}\n")


def test_none_left_is_an_error(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "corrupt").mkdir()
    for step in ("5", "10"):
        shutil.move(run / "checkpoints" / step, run / "corrupt" / step)
    assert verify(run) == 1
    assert "0 intact, 0 damaged: none is left to resume from" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "`--workdir` is missing"),
        (["--workdir=/nowhere/at/all"], "`--workdir` (=/nowhere/at/all) is no folder"),
        (["--workdir=EMPTY"], "holds no checkpoints"),
        (["--workdir=RUN", "--step=7"], "`--step` (=7): no such checkpoint in"),
        (["--workdir=RUN", "--step=7"], "available steps: 5, 10"),
        (["--workdir=RUN", "--step=x"], "step"),
        (["--workdir=RUN", "--fix"], "fix"),
        (["--workdir=RUN", "extra"], "one run folder is to be named, not `"),
        (["RUN", "extra"], "` and `extra`"),
    ],
)
def test_bad_input_is_answered_with_one_line(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    given = [a.replace("RUN", str(original)).replace("EMPTY", str(tmp_path)) for a in arguments]
    assert message in refused(capsys, "verify-checkpoint", *given)


@pytest.mark.slow
def test_as_a_program(run: Path) -> None:
    flip_largest(run / "checkpoints" / "5")
    command = [sys.executable, "-m", "jaxrl", "verify-checkpoint", f"--workdir={run}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "learner/policy/params/head" in done.stdout
    assert done.stderr == ""
    help_text = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    assert help_text.returncode == 0
    assert "--step=N" in help_text.stdout
