"""`population.seeds`: a member is the single run of its seed, to the bit, and a run like any other."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from jaxrl import commands
from jaxrl.config import ConfigError, resolve
from jaxrl.parallel.processes import Processes
from jaxrl.population.members import MemberEnding
from jaxrl.population.run_population import pace, run_population
from jaxrl.programs.hyperparameters import program_shape
from jaxrl.runs.signals import Interruption
from jaxrl.training.run import Invocation
from tests import processes
from tests.programs.test_make_train import tiny_config

SETTINGS = (
    "--config.env.num_envs=8 --config.ppo.rollout_length=16 --config.ppo.num_minibatches=2 "
    "--config.network.hidden_sizes=(8,) --config.network.core_size=8 --config.log.every_steps=512 "
    "--config.ppo.schedule=constant "  # not by the budget, which the tests change
    "--config.evaluate.every_steps=1024 --config.checkpoint.every_steps=1024 --config.evaluate.episodes=8 "
    "--config.network.core=none --config.log.layers=false"
).split()


def command(folder: Path, *arguments: str) -> list[str]:
    return ["-m", "jaxrl", "train", "ppo", *SETTINGS, *arguments, f"--workdir={folder}"]


def train(folder: Path, *arguments: str, devices: int = 2) -> str:
    """What training to the end prints."""
    done = processes.succeed(*command(folder, *arguments), devices=devices)
    return done.stdout


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run without times and loads."""
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("time", "host/", "device/")
    return [{k: x for k, x in row.items() if not k.startswith(timed)} for row in read]


@pytest.fixture(scope="module")
def population(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Three members on two devices."""
    folder = tmp_path_factory.mktemp("population")
    arguments = ("--config.population.seeds=3", "--config.seed=5", "--config.stop.steps=4096")
    return folder, train(folder, *arguments)


def test_the_speed_of_all_is_their_steps_in_the_longest_time() -> None:
    """Each does 100 steps a second while both train, and the second one 200 alone."""
    both = [MemberEnding({"steps_per_second": 100}, seconds=10.0), MemberEnding(None, "NaN", 3.0)]
    assert pace(both) == 100
    both[1] = MemberEnding({"steps_per_second": (1_000 + 10 * 200) / 20}, seconds=20.0)
    assert pace(both) == 200
    assert pace([MemberEnding({"steps_per_second": 0}, seconds=0.0)]) == 0


@pytest.mark.slow
def test_a_member_is_the_single_run_of_its_seed(population: tuple[Path, str], tmp_path: Path) -> None:
    # correctness 25 and 31.
    folder, output = population
    assert sorted(each.name for each in (folder / "members").iterdir()) == ["seed_5", "seed_6", "seed_7"]
    train(tmp_path, "--config.seed=7", "--config.stop.steps=4096", devices=1)
    assert rows(tmp_path) == rows(folder / "members/seed_7")
    summary = json.loads((folder / "summary.json").read_text())
    returns = {name: each["best_return"] for name, each in summary["members"].items()}
    assert summary["best_return"] == max(returns.values())
    assert returns[Path(summary["best_member"]).name] == summary["best_return"]
    assert f"best: {summary['best_member']}" in output
    found = [row for row in rows(folder) if "eval/return" in row]
    assert [row["step"] for row in found] == [1024, 2048, 3072, 4096]
    last = [rows(each)[-1] for each in (folder / "members").iterdir()]
    assert all(row["step"] == 4096 for row in last)


@pytest.mark.slow
def test_the_same_command_again_leaves_the_summary(population: tuple[Path, str]) -> None:
    folder, _ = population
    before = (folder / "summary.json").read_text()
    assert json.loads(before)["steps_per_second"] > 0
    train(folder, "--config.population.seeds=3", "--config.seed=5", "--config.stop.steps=4096")
    assert (folder / "summary.json").read_text() == before


@pytest.mark.slow
def test_tools_take_a_population_as_its_best_member_and_as_its_members(
    population: tuple[Path, str], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, _ = population
    best = json.loads((folder / "summary.json").read_text())["best_member"]
    for words, expected in (
        (("evaluate", f"--workdir={folder}", "--episodes=4"), f"best member {folder / best}"),
        (("verify-checkpoint", f"--workdir={folder}"), "checkpoints of " + str(folder / "members/seed_7")),
        (("compare", str(folder)), "3 runs of 1 variant"),
        (("watch", str(folder)), "seed_6"),
    ):
        assert commands.run(["jaxrl", *words]) == 0
        assert expected in capfd.readouterr().out


# A signal that can be answered: tests/faults/test_kills.py has one to a run.
@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_population_that_was_ended_goes_on_exactly(
    population: tuple[Path, str], signum: int, tmp_path: Path
) -> None:
    whole, _ = population
    arguments = ("--config.population.seeds=3", "--config.seed=5", "--config.stop.steps=4096")
    folders = [tmp_path / f"members/seed_{seed}" for seed in (5, 6, 7)]
    words = command(tmp_path, *arguments, "--config.stop.steps=400000")
    with (tmp_path / "printed.txt").open("w") as printed:
        env = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
        process = processes.start(*words, env=env, stdout=printed, stderr=printed)
    deadline = time.monotonic() + 200
    while not all(any(each.glob("checkpoints/*[0-9]/commit_success.txt")) for each in folders):
        assert process.poll() is None, (tmp_path / "printed.txt").read_text()
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(0.05)
    process.send_signal(signum)
    assert process.wait(120) == (-9 if signum == signal.SIGKILL else 128 + signum)
    steps = max(row["step"] for row in rows(folders[0]))
    train(tmp_path, *arguments, f"--config.stop.steps={max(4096, steps + 1024)}")
    for folder in folders:
        expected = [row for row in rows(whole / f"members/{folder.name}") if row["step"] < 4096]
        found = [row for row in rows(folder) if row["step"] < 4096]
        assert [r for r in found if "checkpoint/step" not in r] == [
            r for r in expected if "checkpoint/step" not in r
        ]


def test_members_of_one_program_differ_in_seed_and_numbers_alone() -> None:
    def shape(**overrides: Any) -> Any:
        return program_shape(resolve(tiny_config(**overrides), 1))

    assert shape() == shape(seed=3, **{"ppo.learning_rate": 1e-4, "ppo.gamma": 0.9})
    for name, value in (("ppo.num_epochs", 2), ("network.core_size", 8), ("ppo.target_kl", 0.1)):
        assert shape() != shape(**{name: value})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("env.name", "gymnasium:CartPole-v1", "runs on the host"),
        ("ppo.shard_optimizer", "on", "divides single runs"),
        ("resume_from", "runs/other", "continues a single run"),
        ("profile.steps", 100, "traces single runs"),
        ("hardware_profile", "auto", "fits single runs"),
    ],
)
def test_what_no_population_can_do_is_refused(tmp_path: Path, field: str, value: Any, reason: str) -> None:
    config = tiny_config(**{"population.seeds": 2, field: value})
    with pytest.raises(ConfigError, match=rf"`population.seeds` \(=2\): .*{reason}"):
        run_population(config, str(tmp_path / "run"), Interruption())
    assert not (tmp_path / "run").exists()


def test_one_process_trains_a_population(tmp_path: Path) -> None:
    config: ConfigDict = tiny_config(**{"population.seeds": 2})
    processes = Processes(coordinator="localhost:1", num_processes=2, process_id=0)
    with pytest.raises(ConfigError, match="one process trains a population"):
        run_population(config, str(tmp_path), Interruption(), Invocation(processes=processes))
