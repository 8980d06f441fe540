"""Searches on Ray: options, what it proposes, what it knows after a kill, and whole searches on two nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from jaxrl.config import ConfigError
from jaxrl.config.files import load_config
from jaxrl.search import optimize
from jaxrl.search.ray_search import RayPlan, values_in
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space
from jaxrl.search.trials import DONE, FAILED, PRUNED, StudyTrial, Task, TrialRecords

ROOT = Path(__file__).parents[2]
SPACE = {
    "ppo.learning_rate": {"log": [1e-4, 1e-2]},
    "ppo.num_epochs": {"int": [1, 8]},
    "network.hidden_sizes": {"choice": [[8], [8, 8]]},
}
STEPS = 1000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scheduler": "pbt"}, "`scheduler` .='pbt'. is for the method ray"),
        ({"method": "pbt", "cpus_per_trial": 2}, "`cpus_per_trial` .=2. is for the method ray"),
        ({"method": "ray", "searcher": "bayes"}, "did you mean `bayesopt`"),
        ({"method": "ray", "jobs": 2}, "`jobs` .=2. must be 1 for the method ray, .*--cpus_per_trial"),
        ({"method": "ray", "population": 2}, "`population` .=2. must be 1 for the method ray"),
        ({"method": "ray", "cpus_per_trial": 0}, "`cpus_per_trial` .=0. must be at least 1"),
        ({"method": "ray", "gpus_per_trial": -0.5}, "`gpus_per_trial` .=-0.5. must be at least 0"),
        ({"method": "ray", "scheduler": "pbt", "searcher": "hyperopt"}, "`searcher` .* must be 'random'"),
        ({"method": "ray", "scheduler": "pbt", "trials": 1}, "at least 2 for the scheduler pbt"),
        ({"method": "ray", "scheduler": "pbt", "metric": "loss/total"}, "must be 'eval/return'"),
    ],
)
def test_bad_option_is_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        SearchOptions(**options)


def test_members_of_population_based_training_are_fewer_than_trials() -> None:
    assert SearchOptions(method="ray").budget == 50
    assert SearchOptions(method="ray", scheduler="pbt").budget == 16


@pytest.mark.parametrize(
    ("module", "options", "text"),
    [
        ("ray", {}, "`--method` .='ray'. needs the `ray` extra: .*pip install"),
        ("bayes_opt", {"searcher": "bayesopt"}, "`--searcher` .='bayesopt'. needs the `ray` extra"),
    ],
)
def test_missing_package_names_the_extra(
    module: str, options: dict[str, Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if module != "ray":
        pytest.importorskip("ray")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=text):
        optimize("ppo_mlp", SPACE, method="ray", workdir=str(tmp_path / "search"), **options)
    assert not (tmp_path / "search").exists()


def plan(folder: Path, given: Any = SPACE, **options: Any) -> RayPlan:
    config = load_config("ppo_mlp")
    config.stop.steps = STEPS
    chosen = SearchOptions(method="ray", workdir=str(folder), **({"trials": 20} | options))
    return RayPlan(Task(config, Space.parse(given), chosen), SearchFolder(str(folder)))


def test_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = plan(tmp_path, scheduler="none", gpus_per_trial=0.5)
    written.write()
    read = RayPlan.read(tmp_path / "ray.json")
    assert (read.task.options, read.task.space) == (written.task.options, written.task.space)
    assert read.folder.path == tmp_path
    trial = StudyTrial(0, {"ppo.learning_rate": 1e-3, "network.hidden_sizes": (8,)})
    assert read.task.config_of(trial) == written.task.config_of(trial)


@pytest.mark.parametrize("searcher", ["random", "bayesopt", "hyperopt"])
def test_proposals_go_on_where_a_kill_left_them(tmp_path: Path, searcher: str) -> None:
    proposals_of(tmp_path, searcher)
    records = TrialRecords(tmp_path)
    first = proposals_of(tmp_path, searcher)
    for number in range(13):  # The first ten are random.
        told = first.suggest(str(number))
        assert told["number"] == number
        values = values_in(told)
        assert 1e-4 <= values["ppo.learning_rate"] <= 1e-2
        assert values["ppo.num_epochs"] in range(1, 9)
        assert values["network.hidden_sizes"] in ((8,), (8, 8))
        if number == 11:
            continue  # It runs until the kill.
        first.on_trial_complete(str(number), {"score": values["ppo.learning_rate"]}, error=number == 4)
        state = FAILED if number == 4 else DONE
        score = None if number == 4 else values["ppo.learning_rate"]
        records.append(StudyTrial(number, values, state, score))
    again = proposals_of(tmp_path, searcher)
    resumed = again.suggest("a")
    assert (resumed["number"], values_in(resumed)) == (11, records.read()[11].values)
    assert [again.suggest(f"b{n}")["number"] for n in range(13, 20)] == list(range(13, 20))
    assert again.suggest("c") == "FINISHED"
    rates = [trial.values["ppo.learning_rate"] for trial in records.read()]
    assert len(set(rates[:10])) == 10
    if searcher != "random":
        assert max(rates[10:]) > 5e-3, "higher rates have higher scores"


def proposals_of(folder: Path, searcher: str) -> Any:
    pytest.importorskip("ray")
    pytest.importorskip({"bayesopt": "bayes_opt"}.get(searcher, "ray" if searcher == "random" else searcher))
    from jaxrl.search.ray_proposals import Proposals

    return Proposals(plan(folder, searcher=searcher))


def test_a_searcher_is_told_of_a_failure_after_a_resume_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from jaxrl.search import ray_proposals

    class Searcher:
        told: ClassVar[dict[str, Any]] = {}

        def suggest(self, name: str) -> None:
            self.told[name] = "suggested"

        def on_trial_complete(self, name: str, result: Any = None, error: bool = False) -> None:
            self.told[name] = "failed" if error else result["score"]

    monkeypatch.setattr(ray_proposals, "_searcher_of", lambda plan, points: Searcher())
    records, values = TrialRecords(tmp_path), {"ppo.learning_rate": 1e-3}
    # The failed one had the best score of all in the evaluation before it diverged.
    for number, (state, score) in enumerate([(DONE, 1.0), (FAILED, 9.0), (PRUNED, 0.5), (FAILED, None)]):
        records.append(StudyTrial(number, values, state, score))
    ray_proposals.Proposals(plan(tmp_path, searcher="bayesopt"))
    assert Searcher.told == {"known-0": 1.0, "known-1": "failed", "known-2": 0.5, "known-3": "failed"}


def test_halving_knows_the_trials_of_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from ray.tune.schedulers import TrialScheduler

    from jaxrl.search.ray_tuner import _halving_scheduler

    known = [StudyTrial(number, {}, DONE, float(number)) for number in range(9)]
    for trial in known:
        folder = tmp_path / "trials" / f"{trial.number:04d}"
        folder.mkdir(parents=True)
        rows = ({"step": step, "eval/return": trial.score} for step in range(50, STEPS, 50))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scheduler, new = _halving_scheduler(plan(tmp_path), known), SimpleNamespace(trial_id="new")
    scheduler.on_trial_add(None, new)
    assert scheduler.on_trial_result(None, new, {"step": 49, "score": -1.0}) == TrialScheduler.CONTINUE
    assert scheduler.on_trial_result(None, new, {"step": 50, "score": 8.5}) == TrialScheduler.CONTINUE
    assert scheduler.on_trial_result(None, new, {"step": 150, "score": 2.0}) == TrialScheduler.STOP


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of a cluster of two nodes of one core each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made.address
    made.shutdown()


def start(folder: Path, space: Any, *more: str) -> subprocess.Popen[str]:
    file = folder.with_suffix(".json")
    file.write_text(json.dumps(space))
    small = "env.num_envs=4 ppo.rollout_length=8 ppo.num_minibatches=2 network.hidden_sizes=(4,)".split()
    settings = [f"--config.{each}" for each in (*small, "evaluate.episodes=4", "log.writers=jsonl")]
    command = ["-m", "jaxrl", "search", "ppo_mlp", f"--space={file}", "--method=ray", f"--workdir={folder}"]
    return subprocess.Popen(
        [sys.executable, *command, "--verify=0", *settings, *more],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> str:
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    return output


def latest(folder: Path) -> dict[int, dict[str, Any]]:
    file = folder / "trials.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return {line["number"]: line for line in map(json.loads, lines)}


@pytest.mark.slow
def test_search_uses_both_nodes_of_a_cluster(cluster: str, tmp_path: Path) -> None:
    space = {"ppo.learning_rate": {"log": [1e-4, 1e-2]}}
    options = "--trials=3", "--scheduler=none", f"--address={cluster}", "--config.stop.steps=512"
    output = finished(start(tmp_path / "search", space, *options))
    assert output.count(": done, ") == 3
    assert "best: trial" in output
    said = (tmp_path / "search/ray.log").read_text().splitlines()
    nodes = {line.rpartition(" on ")[2] for line in said if line.startswith("trial ")}
    assert len(nodes) == 2, said


@pytest.mark.slow
def test_killed_search_continues_with_the_same_command(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    space = {"ppo.learning_rate": {"choice": [1e-3, 1e-2]}}
    options = (
        "--trials=2",
        "--scheduler=none",
        "--config.stop.steps=4096",
        "--config.checkpoint.every_steps=64",
    )
    folder = tmp_path / "killed"
    process = start(folder, space, *options)
    deadline = time.monotonic() + 200
    while not list((folder / "trials").glob("*/checkpoints/*[0-9]/commit_success.txt")):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert any(trial["state"] == "running" for trial in latest(folder).values())
    finished(start(folder, space, *options))
    finished(start(tmp_path / "whole", space, *options))
    outcomes = [
        [(trial["state"], trial["values"], trial["score"]) for _, trial in sorted(latest(each).items())]
        for each in (folder, tmp_path / "whole")
    ]
    assert outcomes[0] == outcomes[1]
    assert [state for state, _, _ in outcomes[0]] == ["done", "done"]
    logs = [log.read_text() for log in (folder / "trials").glob("*.log")]
    assert any("resumed from the checkpoint" in log for log in logs)


@pytest.mark.slow
def test_population_based_training_copies_the_best(cluster: str, tmp_path: Path) -> None:
    space = {"ppo.learning_rate": {"log": [1e-5, 1e-2]}}
    more = "--trials=2", "--scheduler=pbt", f"--address={cluster}", "--config.stop.steps=20000"
    folder = tmp_path / "search"
    finished(start(folder, space, *more))
    assert {trial["state"] for trial in latest(folder).values()} == {"done"}
    lines = [json.loads(line) for line in (folder / "lineage.jsonl").read_text().splitlines()]
    assert all(line["member"] != line["source"] for line in lines)
    member = lines[-1]["member"]
    config = json.loads((folder / f"trials/{int(member):04d}/config.json").read_text())
    assert config["ppo"]["learning_rate"] == pytest.approx(lines[-1]["values"]["learning_rate"])
    steps = [
        json.loads(line)["step"]
        for line in (folder / f"trials/{int(member):04d}/metrics.jsonl").read_text().splitlines()
    ]
    assert steps == sorted(steps)
