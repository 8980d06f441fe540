"""benchmarks/time_to_score.py: what a process took, who reached the score, who cannot take part."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers"))

import score_tables
import scores
import shipped
import time_to_score

PEERS = str(Path(scores.__file__).parent)
# Prints what a runner prints, after a time that can be told from that of an empty process.
_RUNNER = """
import sys, json, time, pathlib
sys.path.insert(0, {peers!r})
import outcome
given = outcome.task()
time.sleep(given["settings"].get("sleep", 0.0))
if given["seed"] == 1:
    sys.exit("it broke")
outcome.report(steps=100, eval_return=given["score"] - given["seed"], versions={{"own": "1"}})
"""


@pytest.fixture
def trainer(tmp_path, monkeypatch):
    """A trainer of our own: seed 0 reaches the score, seed 1 fails, others miss it."""
    runner = tmp_path / "runner.py"
    runner.write_text(_RUNNER.format(peers=PEERS))
    own = scores.ScoreTrainer("own", str(runner), "", "sbx", "PPO", {"cartpole": "nothing", "acrobot": "x"})
    monkeypatch.setitem(scores.TRAINERS, "own", own)
    return own


def session(tmp_path, **changes):
    given = {"output": str(tmp_path / "out"), "tasks": ["cartpole"], "trainers": ["own"], "seeds": [0]}
    given |= {"limit": 60.0, "sbx_python": sys.executable, "rejax": None, "rejax_python": None}
    return time_to_score.Session(argparse.Namespace(**given | changes))


@pytest.fixture
def zoo(monkeypatch):
    """Sets what our trainer is given."""
    return lambda value: monkeypatch.setattr(shipped, "ZOO", {"cartpole": value, "acrobot": value})


@pytest.mark.slow
def test_every_process_leaves_a_sample_and_a_command_with_the_same_folder_adds(tmp_path, trainer, zoo):
    zoo({"sleep": 0.3})
    session(tmp_path, seeds=[0, 1]).run()
    session(tmp_path, seeds=[2, 0]).run()
    record = json.loads((tmp_path / "out" / "time_to_score.json").read_text())
    assert len(record["commands"]) == 2
    found = {(x["seed"], x["cache"]): x for x in record["samples"]}
    assert len(record["samples"]) == len(found) == 6  # seed 0 was measured again, and its samples replaced
    assert all(0.3 < found[0, state]["wall_seconds"] < 10 for state in ("cold", "warm"))
    assert [found[seed, "cold"]["reached"] for seed in (0, 1, 2)] == [True, False, False]
    assert found[1, "warm"]["why"] == "failed: it broke"
    assert found[2, "cold"]["why"] == "its 100 steps were over"
    (line,) = [x for x in score_tables.table(record["samples"]) if x.startswith("| cartpole")]
    assert "2 of 6: failed: it broke; its 100 steps were over, at 473.0" in line
    page = (tmp_path / "out" / "time_to_score.md").read_text()
    assert "- own: own 1" in page
    assert "- cleanrl: " in page


@pytest.mark.slow
def test_a_process_that_takes_too_long_is_stopped(tmp_path, trainer, zoo):
    zoo({"sleep": 60.0})
    session(tmp_path, limit=0.2).run()
    record = json.loads((tmp_path / "out" / "time_to_score.json").read_text())
    assert {x["why"] for x in record["samples"]} == {"stopped after 0.2 s"}


@pytest.mark.slow
def test_who_cannot_take_part_is_named_once(tmp_path, trainer, zoo, capsys):
    zoo({})
    asked = {"tasks": ["cartpole", "pendulum"], "trainers": ["own", "rejax-ppo"], "seeds": [2, 3]}
    session(tmp_path, sbx_python=None, **asked).run()
    lines = capsys.readouterr().out.splitlines()
    missing = "is on no package index with its settings: give --rejax=PATH, a checkout of it"
    assert lines == [
        "cartpole, own: skipped: it needs a Python of its own: give --sbx-python=PYTHON",
        f"cartpole, rejax-ppo: skipped: it {missing}",
        "pendulum, own: skipped: it ships no settings for it",
        f"pendulum, rejax-ppo: skipped: it {missing}",
    ]
    assert missing in (tmp_path / "out" / "time_to_score.md").read_text()


def test_rows_are_in_the_order_of_their_cold_medians_and_those_without_one_last():
    def sample(trainer, seed, wall, reached=True):
        state = {"trainer": trainer, "task": "cartpole", "seed": seed, "why": "" if reached else "no"}
        return state | {"cache": "cold", "wall_seconds": wall, "reached": reached, "steps": 10 * seed}

    found = [sample("jaxrl", seed, wall) for seed, wall in ((1, 9.0), (2, 5.0), (3, 6.0))]
    found += [sample("purejaxrl", 1, 1.0, reached=False), sample("rejax-ppo", 1, 5.5)]
    rows = [line.split(" | ")[2:6] for line in score_tables.table(found)[2:]]
    assert rows == [
        ["rejax-ppo", "5.5", "", "1 of 1"],
        ["jaxrl", "6.0 (5.0 to 9.0)", "", "3 of 3"],
        ["purejaxrl", "", "", "0 of 1: no"],
    ]


def test_settings_come_from_a_checkout_of_rejax(tmp_path):
    folder = tmp_path / "configs" / "gymnax"
    folder.mkdir(parents=True)
    text = "ppo:\n  env: CartPole-v1\n  num_envs: 5\n  learning_rate: 2.5e-4\n  total_timesteps: 100_000\n"
    (folder / "cartpole.yaml").write_text(text)
    found = scores.settings(scores.TRAINERS["rejax-ppo"], scores.TASKS["cartpole"], tmp_path)
    assert found == {"num_envs": 5, "learning_rate": 2.5e-4, "total_timesteps": 100_000}


def test_settings_of_the_zoo_become_arguments_of_its_algorithms():
    arguments, others = shipped.zoo_arguments(shipped.ZOO["cartpole"])
    assert others == {"envs": 8, "steps": 100_000}
    assert (arguments["n_steps"], arguments["gamma"]) == (32, 0.98)
    # From the whole of the steps to none: linearly, to zero.
    assert [arguments["learning_rate"](left) for left in (1.0, 0.5, 0.0)] == [1e-3, 5e-4, 0.0]
    assert [arguments["clip_range"](left) for left in (1.0, 0.5, 0.0)] == [0.2, 0.1, 0.0]


def test_our_command_names_environments_that_there_are():
    from jaxrl.config.selection import known_environment

    for task in scores.TASKS.values():
        assert known_environment(task.ours)
        assert dataclasses.replace(task, arguments="").ours == f"gymnax:{task.env}"
