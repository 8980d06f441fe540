"""`jaxrl search` as a user types it: bad input in one line, a whole search, a kill and the same command."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config.files import load_config
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.study import RandomSampler
from jaxrl.search.trials import Task
from tests import processes
from tests.commands.refusals import refused

SPACE = "ppo.learning_rate: {log: [1e-4, 1e-2]}\nnetwork.hidden_sizes: {choice: [[8], [8, 8]]}\n"


@pytest.mark.parametrize(
    ("arguments", "space", "text"),
    [
        (["ppo_mlp"], None, "`--space` is missing"),
        (["ppo_mlp", "--space=nowhere.yaml"], None, "cannot be read: No such file"),
        (["ppo_mlp", "--metirc=x"], SPACE, "unknown flag `--metirc`; did you mean `--metric`?"),
        (
            ["ppo_mlp", "--optimizer=optuna", "--algo=sac"],
            SPACE,
            "`--optimizer` (here it is `--method`), `--algo`",
        ),
        (["ppo_mlp"], "learning_rate: {log: [1e-4, 1e-2]}", "did you mean `ppo.learning_rate`?"),
        (["ppo_mlp"], "lr: {log: [1e-4, 1e-2]}", "here it is `ppo.learning_rate`"),
        (["dqn"], "lr: {log: [1e-4, 1e-2]}", "here it is `dqn.learning_rate`"),
        (["dqn"], "lr: {log: [1e-4, 1e-2]}", "`lr` of the space is no field; here it is `dqn.learning_rate`"),
        (["dqn"], "gamma: [0.9, 0.99]", "`gamma` of the space is no field; did you mean `dqn.gamma`?"),
        (["ppo_mlp", "--method=gird"], SPACE, "did you mean `grid`?"),
        (["ppo_mlp", "--address=auto"], SPACE, "`address` (='auto') is for the method ray"),
        (["ppo_mlp", "--method=ray", "--gpus_per_trial=-1"], SPACE, "gpus_per_trial"),
        (["ppo_mlp", "--method=ray", "--scheduler=ahsa"], SPACE, "did you mean `asha`?"),
        (["ppo_mlp", "--trials=0"], SPACE, "`trials` (=0) must be at least 1"),
        (["ppo_mlp", "--trials=99999999999999999999"], SPACE, "trials"),
        (["ppo_mpl"], SPACE, "did you mean `ppo_mlp`?"),
        ([], SPACE, "`--config` is missing"),
        (["ppo_mlp", "--config.ppo.gama=1"], SPACE, "did you mean `config.ppo.gamma`?"),
        pytest.param(
            ["ppo_mlp", "--workdir=gs://bucket/x"],
            SPACE,
            "must be a local folder",
            marks=pytest.mark.slow,  # A process is started, which takes four seconds.
        ),
        (["ppo_mlp"], "ppo.learning_rate: {log: [0, 1e-2]}", "must be above 0"),
        (["ppo_mlp"], "seed: {int: [0, 9]}", "verified with fresh seeds"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], space: str | None, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if space is not None:
        file = tmp_path / "space.yaml"
        file.write_text(space)
        arguments = [*arguments, f"--space={file}"]
    if not any(argument.startswith("--workdir") for argument in arguments):
        arguments = [*arguments, f"--workdir={tmp_path / 'search'}"]
    assert text in refused(capsys, "search", *arguments)
    assert not (tmp_path / "search").exists()


# Numbers alone, so that the programs of all trials are equal: one is compiled, and the others find it.
NUMBERS = "ppo.learning_rate: {log: [1e-4, 1e-2]}\nppo.gamma: [0.9, 0.99]\n"


def command(folder: Path, *more: str) -> list[str]:
    (folder / "space.yaml").write_text(NUMBERS)
    return [
        *("-m", "jaxrl", "search", "ppo_mlp", f"--space={folder / 'space.yaml'}"),
        *("--config.stop.steps=8192", "--config.log.writers=jsonl", "--config.log.layers=false"),
        "--config.checkpoint.every_steps=1024",
        *("--config.evaluate.episodes=4", f"--workdir={folder / 'search'}", *more),
    ]


def trials(folder: Path) -> dict[int, dict[str, Any]]:
    """The last line of each trial."""
    lines = (folder / "search/trials.jsonl").read_text().splitlines()
    return {record["number"]: record for record in map(json.loads, lines)}


def started(arguments: list[str], folder: Path) -> processes.Process:
    with (folder / "printed.txt").open("w") as printed:
        return processes.start(*arguments, stdout=printed, stderr=printed)


def wait_for_checkpoint(process: processes.Process, folder: Path) -> None:
    """Waits until the first trial has a checkpoint that is whole, not one that is being written."""
    deadline = time.monotonic() + 120
    while not any((folder / "search/trials/0000/checkpoints").glob("*[0-9]/commit_success.txt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Other methods propose from the trials that are recorded: tests/search/test_optuna.py and test_pareto.py.
# Killed members: tests/population/test_run_population.py. Resumed runs: tests/e2e/test_resume.py.
# Its verification: tests/search/test_trials.py.
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [0, pytest.param(1, marks=pytest.mark.long)])
def test_killed_search_continues_with_the_same_command(seeds: int, tmp_path: Path) -> None:
    arguments = command(tmp_path, "--method=random", "--trials=2", f"--verify={seeds}", "--population=1")
    process = started(arguments, tmp_path)
    wait_for_checkpoint(process, tmp_path)
    process.kill()
    process.wait()
    assert trials(tmp_path)[0]["state"] == "running"

    done = processes.succeed(*arguments)
    assert "resumed from the checkpoint" in (tmp_path / "search/trials/0000.log").read_text()
    found = trials(tmp_path)
    task = Task(load_config("ppo_mlp"), Space.read(str(tmp_path / "space.yaml")), SearchOptions())
    sampler = RandomSampler(task)
    assert {n: (x["state"], x["values"]) for n, x in found.items()} == {
        n: ("done", sampler.point(n, ())) for n in range(2)
    }
    assert "best: trial" in done.stdout
    assert "get_config" in (tmp_path / "search/best_config.py").read_text()
    result = json.loads((tmp_path / "search/result.json").read_text())
    number = result["best"]["trial"]
    assert result["best"]["searched"] == found[number]["score"]
    if seeds:
        assert result["verified"][0]["seeds"] == [101]
        assert (tmp_path / f"search/verification/{number:04d}-seed-101/summary.json").exists()


# A killed one is above; signals of a run: tests/faults/test_signals.py.
@pytest.mark.long
def test_interrupted_search_saves_its_trials_and_says_how_to_go_on(tmp_path: Path) -> None:
    arguments = command(tmp_path, "--trials=1", "--config.stop.steps=100000000")
    process = started(arguments, tmp_path)
    wait_for_checkpoint(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM
    printed = (tmp_path / "printed.txt").read_text()
    assert "\nSIGTERM: the same command continues the search\n" in f"\n{printed}"
    assert trials(tmp_path)[0]["state"] == "running"
    assert "SIGTERM: saved" in (tmp_path / "search/trials/0000.log").read_text()
