"""Experiments: options, datasets, and cells that are killed, resumed, failed and compared."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxrl.commands.experiment import main
from jaxrl.config import ConfigError
from jaxrl.envs.native.platformer.level_files import SHIPPED
from jaxrl.experiments.cells import ExperimentPlan
from jaxrl.experiments.datasets import LevelDataset
from jaxrl.experiments.options import ExperimentOptions, from_mapping

REQUIRED = {
    "experiment_name": "x",
    "architectures": ("gcn",),
    "train_dataset": "train",
    "test_dataset": "test",
}


def options(**changes) -> ExperimentOptions:
    return ExperimentOptions(**{**REQUIRED, **changes})


def test_pretraining_is_decided_by_flags_and_data() -> None:
    assert options().modes == ("no_pretrain",)
    assert options(replay_data_dir="d").modes == ("with_pretrain",)
    assert options(replay_data_dir="d", no_pretraining=True).modes == ("no_pretrain",)
    assert options(replay_data_dir="d", test_pretraining=True).modes == ("no_pretrain", "with_pretrain")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ()}, "`--architectures` is missing: names of architectures"),
        ({"test_dataset": ""}, "`--test-dataset` is missing: levels that"),
        ({"experiment_name": "a/b"}, "`experiment_name` .='a/b'. must consist of letters"),
        ({"num_envs": 0}, "`num_envs` .=0. must be at least 1"),
        ({"test_pretraining": True, "no_pretraining": True}, "exclude each other"),
        ({"test_pretraining": True}, "needs demonstrations: --replay-data-dir=DIR"),
        ({"architectures": ("gcn", "gcn")}, "hold no element twice"),
    ],
)
def test_options_are_checked(changes, message) -> None:
    with pytest.raises(ConfigError, match=message):
        options(**changes)


def test_options_of_a_file_have_the_names_of_the_flags() -> None:
    given = {"experiment-name": "x", "architectures": ["gat", "gcn"], "train-dataset": "train"}
    found = from_mapping({**given, "test_dataset": "test", "seeds": 3, "s3-bucket": "None"}, "x.yaml")
    assert (found.architectures, found.seeds, found.bucket) == (("gat", "gcn"), (3,), "")
    with pytest.raises(ConfigError, match=r"x.yaml: unknown option `seed`; did you mean `seeds`"):
        from_mapping({"seed": 1}, "x.yaml")


def test_cells_and_their_folders(tmp_path: Path) -> None:
    several = options(architectures=("gcn", "mlp_baseline"), seeds=(0, 1), s3_bucket="b", num_envs=8)
    plan = ExperimentPlan.of(several, tmp_path / "x_1")
    places = [cell.folder.relative_to(tmp_path).as_posix() for cell in plan.cells]
    assert places == [
        "x_1/gcn/no_pretrain/seed_0",
        "x_1/gcn/no_pretrain/seed_1",
        "x_1/mlp_baseline/no_pretrain/seed_0",
        "x_1/mlp_baseline/no_pretrain/seed_1",
    ]
    config = plan.config(plan.cells[1])
    assert (config.seed, config.env.num_envs, config.network.architecture) == (1, 8, "gcn")
    assert config.storage.sync_to == "s3://b/experiments/x_1/gcn/no_pretrain/seed_1"
    alone = ExperimentPlan.of(options(), tmp_path).cells[0]
    assert alone.folder == tmp_path / "gcn" / "no_pretrain"


def test_a_cell_with_pretraining_is_one_more_command(tmp_path: Path) -> None:
    plan = ExperimentPlan.of(options(replay_data_dir="demos", bc_epochs=3), tmp_path)
    (cell,) = plan.cells
    command, *arguments = plan.pretrain_arguments(cell)
    assert command == "pretrain"
    assert arguments[1:] == [
        "--data=demos",
        "--bc-epochs=3",
        "--bc-batch-size=64",
        f"--workdir={tmp_path}/gcn/with_pretrain_clone",
    ]
    assert plan.config(cell, initialized=True).init_from == f"{tmp_path}/gcn/with_pretrain_clone"


def test_datasets_that_are_none_are_answered_in_one_line(tmp_path: Path) -> None:
    def of(given: Path | str) -> LevelDataset:
        return LevelDataset.of("--train-dataset", str(given))

    with pytest.raises(ConfigError, match="is no folder: looked for simple, medium, .* jaxrl prepare-data"):
        of(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no folder of a category"):
        of(tmp_path)
    shutil.copytree(SHIPPED / "test", tmp_path / "levels")
    assert of(tmp_path / "levels").folder == str(tmp_path / "levels")
    shutil.rmtree(tmp_path / "levels" / "complex")
    with pytest.raises(ConfigError, match="lacks the folder .*levels/complex; jaxrl prepare-data"):
        of(tmp_path / "levels")
    (tmp_path / "levels" / "complex").mkdir()
    with pytest.raises(ConfigError, match="has no level of the category complex; jaxrl prepare-data"):
        of(tmp_path / "levels")
    with pytest.raises(ConfigError, match="is a pickle, .* save its arrays as .npz"):
        of("replays.pkl")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "`--experiment-name` is missing"),
        (["--distributed-backend=nccl"], "JAX has one backend for distribution"),
        (["--resume-from=nowhere"], "`--resume-from` (='nowhere') is no experiment"),
        (["--experiment-nam=x"], "unknown flag"),
        (["--seeds=a"], "`--seeds` (='a') must be integers"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["jaxrl experiment", *arguments]) == 2
    stderr = capfd.readouterr().err
    assert message in stderr
    assert len(stderr.splitlines()) == 1


def test_a_wrong_architecture_is_answered_with_the_list(capfd: pytest.CaptureFixture[str], tmp_path) -> None:
    given = [
        "--experiment-name=x",
        "--train-dataset=train",
        "--test-dataset=test",
        f"--output-dir={tmp_path}",
    ]
    assert main(["jaxrl experiment", *given, "--architectures", "gcm", "--num-gpus", "0"]) == 2
    assert "must be one of full_hgt, simplified_hgt, gat" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


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


@pytest.mark.slow
def test_an_experiment_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Killed in its first cell and resumed, it ends; a cell that fails is named, and the rest go on."""
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
        "output_dir": str(tmp_path / "out"),
    }
    file.write_text(json.dumps(given))
    run = [sys.executable, "-m", "jaxrl", "experiment"]
    first = subprocess.Popen([*run, str(file)], cwd=tmp_path, env=os.environ)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("out/tiny_*/mlp_baseline/no_pretrain/config.json")):
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    (folder,) = (tmp_path / "out").iterdir()
    # The other cell fails: something is in the way of its run folder.
    (folder / "gcn").mkdir()
    (folder / "gcn" / "no_pretrain").write_text("in the way")
    resume = [*run, f"--resume-from={folder}"]
    done = subprocess.run(resume, capture_output=True, text=True, cwd=tmp_path, timeout=400)
    assert done.returncode == 1, done.stderr
    assert "gcn/no_pretrain/seed_0 failed: " in done.stderr
    cells = json.loads((folder / "all_results.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["finished", "failed"]
    place = folder / "mlp_baseline" / "no_pretrain"
    assert (place / "final_model.zip").stat().st_size > 1000
    before = (place / "eval_results.json").read_text()
    results = json.loads(before)
    assert results["test"]["all"]["episodes"] == 5
    assert set(results["test"]) == {"all", "simple", "medium", "complex", "mine_heavy", "exploration"}
    assert results["p50_ms"] > 0
    done = subprocess.run(resume, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 1
    assert "mlp_baseline/no_pretrain/seed_0: finished before" in done.stdout
    assert (place / "eval_results.json").read_text() == before
    matrix = json.loads((folder / "decision_matrix.json").read_text())
    assert [row["name"] for row in matrix["rows"]] == ["mlp_baseline/no_pretrain"]
    assert "<table" in (folder / "decision_matrix.html").read_text()
    assert "finished before" in (folder / "tiny.log").read_text()
    assert [place.name for place in (folder / "comparison").iterdir()] == ["mlp_baseline-no_pretrain-seed_0"]
