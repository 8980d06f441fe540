"""What the dashboard says of runs, without a server."""

from __future__ import annotations

import json
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from etils import epath

from jaxrl.diagnostics.dashboard import server
from jaxrl.diagnostics.dashboard.collection import RunCollection
from jaxrl.diagnostics.dashboard.run_view import RunView
from jaxrl.reporting.writers import JsonlWriter
from tests.comparison.run_folders import write_run


def test_a_run_is_as_far_as_the_budget_that_ends_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "timed", [1.0], finished=False, stop__seconds=4.0)
    view = RunView("timed", epath.Path(folder))
    view.poll()
    # 1,000 steps of as many, in a second of 4.
    assert (view.row()["step"], view.share) == (1000, 1.0)
    config = json.loads((folder / "config.json").read_text())
    config["derived"]["num_iterations"] *= 100
    (folder / "config.json").write_text(json.dumps(config))
    view.poll()
    assert view.share == 0.25


def test_episodes_without_an_end_are_said_as_long_as_the_last_evaluation_had_some(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "endless", [1.0])
    view = RunView("endless", epath.Path(folder))
    found = []
    for step, cut in ((2000, {"eval/cut_off": 3.0}), (3000, {})):
        writer = JsonlWriter(folder / "metrics.jsonl")
        writer.write(step, {"eval/return": 10_000.0, **cut})
        writer.close()
        view.poll()
        found.append(view.row()["cut_off"])
    assert found == [3.0, 0]


def test_the_load_of_the_machine_is_counted_over_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    Times = namedtuple("Times", "user guest idle iowait")
    times = iter([Times(10.0, 9.0, 100.0, 0.0), Times(13.0, 12.0, 100.5, 0.5), Times(13.0, 12.0, 100.5, 0.5)])
    monkeypatch.setattr("psutil.cpu_times", lambda: next(times))
    monkeypatch.setattr("psutil.cpu_count", lambda: 2)
    machine = server._Machine()
    assert machine.read()["load"] == 75.0  # three seconds of four
    with ThreadPoolExecutor() as pool:  # at once, in another thread
        assert pool.submit(machine.read).result()["load"] == 75.0


def test_environments_have_curves_of_their_own_that_are_named_as_runs(tmp_path: Path) -> None:
    for name, env in (("a", "gymnax:CartPole-v1"), ("b", "gymnax:Pendulum-v1"), ("c", "gymnax:Pendulum-v1")):
        write_run(tmp_path / name, [1.0], env=env, ppo__gamma=0.5 if name == "c" else 0.9)
    for seed in (10, 11):
        write_run(tmp_path / f"many/cart_{seed}", [1.0], seed)
    runs = RunCollection(str(tmp_path), 1.0)
    runs.look()
    curves = runs.curves(["a", "b", "c"], "episode/return")
    assert [(curve["env"], curve["label"]) for curve in curves] == [
        ("gymnax:CartPole-v1", "a"),
        ("gymnax:Pendulum-v1", "b: ppo.gamma=0.9"),
        ("gymnax:Pendulum-v1", "c: ppo.gamma=0.5"),
    ]
    (curve,) = runs.curves(["many/cart_10", "many/cart_11"], "episode/return")
    assert curve["label"] == "many/cart (2 seeds)"
    write_run(tmp_path / "many/again", [1.0], 11)
    write_run(tmp_path / "many/unreadable", [1.0])
    (tmp_path / "many/unreadable/config.json").write_text("{")
    runs = RunCollection(str(tmp_path), 1.0)
    runs.look()
    (curve,) = runs.curves(["many/cart_11", "many/again"], "episode/return")
    assert curve["label"] == "many (2 runs)"  # of one seed
    (curve,) = runs.curves(["many/unreadable"], "episode/return")
    assert curve["env"] == "unknown environment"
    # Of another version, which lacks a field and has one that is a constant by now.
    file = tmp_path / "many/cart_11/config.json"
    config = json.loads(file.read_text())
    del config["ppo"]["max_grad_norm"]
    file.write_text(json.dumps({**config, "dqn": {"priority_beta_draws": 100_000}}))
    runs.look()
    assert len(runs.curves(["many/cart_10", "many/cart_11"], "episode/return")) == 1
