"""Whole experiments: killed twice and resumed, from a clone that is worth nothing, and with a bucket."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxrl.config.level_datasets import LevelDataset
from jaxrl.envs import registry
from jaxrl.experience.demonstrations import record_episodes, write_dataset
from jaxrl.experience.demonstrations.recording import RandomPlayer
from jaxrl.experiments.cells import ExperimentFolder, ExperimentPlan
from jaxrl.experiments.experiment import run
from jaxrl.runs.signals import Interruption
from tests import processes
from tests.experiments.test_experiment import finish, options
from tests.runs.storage.s3_server import s3_server

QUICK = """from jaxrl.config.files import load_config

def get_config():
    c = load_config("ppo_architectures")
    c.ppo.rollout_length = 16
    c.ppo.num_epochs = 1
    c.ppo.num_minibatches = 1
    c.evaluate.episodes = 2
    c.network.state_sizes = (4,)
    c.network.fusion_size = 4
    c.network.graph_width = 4
    c.log.every_steps = 64
    return c
"""


@pytest.mark.long
def test_a_clone_that_has_learnt_nothing_is_not_started_from(tmp_path: Path) -> None:
    """Actions at random teach nothing that their frequencies do not say."""
    (tmp_path / "quick.py").write_text(QUICK)
    env = LevelDataset.of("--train-dataset", "train").environment()
    spec = registry.spec_of(env)
    recorded = record_episodes(env, (), RandomPlayer(spec), 4, seed=0)
    write_dataset(tmp_path / "random", recorded, spec, {"env": env, "wrappers": []})
    given = options(
        architectures=("mlp_baseline",),
        config=str(tmp_path / "quick.py"),
        replay_data_dir=str(tmp_path / "random"),
        bc_epochs=1,
        total_timesteps=64,
        num_envs=4,
        eval_freq=64,
        save_freq=0,
        episodes=1,
    )
    said: list[str] = []
    _, failures = run(given, ExperimentFolder(tmp_path / "x_1"), Interruption(), said.append, "experiment")
    assert not failures
    why = "it is no better than a policy without observations"
    warning = f"warning: trained from scratch, since the clone failed: {why}"
    assert [line for line in said if "warning" in line] == [f"mlp_baseline/with_pretrain/seed_0: {warning}"]
    place = tmp_path / "x_1" / "mlp_baseline" / "with_pretrain"
    assert json.loads((place / "eval_results.json").read_text())["clone"] == why
    assert json.loads((place / "config.json").read_text())["init_from"] == ""
    assert f"finished, from scratch: {why}" in (tmp_path / "x_1" / "report.html").read_text()


# Copies in buckets: tests/training/test_mirror.py.
@pytest.mark.long
def test_a_bucket_has_the_files_of_an_experiment_and_a_manifest(tmp_path: Path) -> None:
    folder = ExperimentFolder(tmp_path / "x_1")
    plan = ExperimentPlan.of(options(s3_bucket="runs"), folder.path)
    (cell,) = plan.cells
    finish(plan, cell, [0.5])
    folder.write("config.json", plan.to_json())
    with s3_server() as s3:

        def jaxrl(*arguments: str) -> None:
            done = processes.succeed("-m", "jaxrl", *arguments, env=os.environ | s3)
            assert "warning" not in done.stdout + done.stderr

        jaxrl("experiment", f"--resume-from={folder.path}")
        jaxrl("sync", "s3://runs/experiments/x_1", str(tmp_path / "back"))
    copies = {cell.name: "s3://runs/experiments/x_1/gcn/no_pretrain"}
    assert json.loads((tmp_path / "back" / "s3_manifest.json").read_text()) == {"copies": copies}
    for name in ("config.json", "all_results.json", "decision_matrix.md", "report.html"):
        assert (tmp_path / "back" / name).read_bytes() == (folder.path / name).read_bytes()


@pytest.mark.long
def test_an_experiment_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Two cells side by side, killed outright and then stopped by a signal, end as those that were not."""
    (tmp_path / "quick.py").write_text(QUICK)
    file = tmp_path / "experiment.yaml"
    given = {
        "experiment_name": "tiny",
        "architectures": ["mlp_baseline", "gcn"],
        "train_dataset": "train",
        "test_dataset": "test",
        "config": str(tmp_path / "quick.py"),
        "total_timesteps": 192,
        "num_envs": 4,
        "eval_freq": 64,
        "save_freq": 64,
        "episodes": 1,
        "jobs": 2,
        "output_dir": str(tmp_path / "the output"),
    }
    file.write_text(json.dumps(given))
    command = ("-m", "jaxrl", "experiment")
    printed = tmp_path / "printed.txt"
    with printed.open("w") as output:
        first = processes.start(*command, str(file), cwd=tmp_path, stdout=output, stderr=output)
    # Both train at the same time: neither has finished.
    wait_for(first, lambda: len(list(tmp_path.glob("the output/tiny_*/*/no_pretrain/config.json"))) == 2)
    assert not list(tmp_path.glob("the output/tiny_*/*/no_pretrain/eval_results.json"))
    first.kill()
    first.wait()
    (folder,) = (tmp_path / "the output").iterdir()
    resume = (*command, f"--resume-from={folder}")
    with printed.open("w") as output:
        second = processes.start(*resume, cwd=tmp_path, stdout=output, stderr=output)
    wait_for(second, lambda: (folder / "tiny.log").read_text().count("starts") == 4)
    second.send_signal(signal.SIGTERM)
    assert second.wait(120) == 128 + signal.SIGTERM, printed.read_text()
    again = shlex.quote(f"--resume-from={folder}")
    assert f"jaxrl experiment {again} continues" in printed.read_text()
    processes.succeed(*resume, cwd=tmp_path, timeout=400)
    cells = json.loads((folder / "all_results.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["finished", "finished"]
    for name in ("mlp_baseline", "gcn"):
        place = folder / name / "no_pretrain"
        assert (place / "final_model.zip").stat().st_size > 1000
        rows = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows if "eval/return" in row] == [64, 128, 192]
        results = json.loads((place / "eval_results.json").read_text())
        assert results["test"]["all"]["episodes"] == 5
        assert set(results["test"]) == {"all", "simple", "medium", "complex", "mine_heavy", "exploration"}
        assert results["p50_ms"] > 0
        assert results["actions"] in ("greedy", "sampled")
    matrix = json.loads((folder / "decision_matrix.json").read_text())
    assert {row["name"] for row in matrix["rows"]} == {"mlp_baseline/no_pretrain", "gcn/no_pretrain"}
    page = (folder / "report.html").read_text()
    assert "2 architectures, no_pretrain, 1 seed: 2 of 2 cells finished" in page
    assert "<footer>jaxrl experiment " in page
    file.write_text(json.dumps(given | {"output_dir": str(tmp_path / "alone")}))
    processes.succeed(*command, str(file), cwd=tmp_path, timeout=400)
    (unkilled,) = (tmp_path / "alone").iterdir()
    for name in ("mlp_baseline", "gcn"):
        place, other = (x / name / "no_pretrain" for x in (folder, unkilled))
        assert evaluations_of(place) == evaluations_of(other)
        one, two = (json.loads((x / "eval_results.json").read_text()) for x in (place, other))
        for key in ("test", "train", "actions", "steps_to_threshold", "parameters"):
            assert one[key] == two[key]


def evaluations_of(run: Path) -> list[dict[str, float]]:
    """What each evaluation of a run measured, without times."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: x for key, x in row.items() if key == "step" or key.startswith("eval/")}
        for row in rows
        if "eval/return" in row
    ]


def wait_for(process: processes.Process, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
