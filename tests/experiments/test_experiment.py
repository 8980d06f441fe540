"""Experiments: options, datasets, and cells that are killed, resumed, failed and compared."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from etils import epath

from jaxrl.commands.experiment import main, show_estimates
from jaxrl.config import Config, ConfigError
from jaxrl.config.level_datasets import LevelDataset
from jaxrl.diagnostics import architectures
from jaxrl.diagnostics.architectures import TrainingCost
from jaxrl.envs.native.platformer.level_files import SHIPPED
from jaxrl.experiments.cells import ExperimentCell, ExperimentFolder, ExperimentPlan, copy_files
from jaxrl.experiments.experiment import run
from jaxrl.experiments.experiment_options import ExperimentOptions, from_mapping, read_options
from jaxrl.experiments.results import Measured, group_curve, of_suite, write_results
from jaxrl.experiments.runner import jobs_of
from jaxrl.runs import records
from jaxrl.runs.executor import PlannedRun
from jaxrl.runs.signals import Interruption
from tests.commands.refusals import refused
from tests.comparison.run_folders import write_run
from tests.reporting.writers.test_writers import _scalars_of

CONFIGS = Path(__file__).parents[2] / "configs"
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


@pytest.mark.parametrize("path", sorted((CONFIGS / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_experiments_name_architectures_that_suit_their_levels(path: Path, tmp_path: Path) -> None:
    given = read_options(str(path))
    assert given["experiment_name"] == path.stem
    found = from_mapping(given | {"test-dataset": "test"}, str(path))  # its own is made by a command
    plan = ExperimentPlan.of(found, tmp_path)
    assert len(plan.cells) == len(found.architectures) * len(found.modes) * len(found.seeds)


def test_the_runs_in_the_folder_of_an_experiment_are_its_cells(tmp_path: Path) -> None:
    """The dashboard, `jaxrl watch` and `jaxrl compare` took the options in config.json for a run's."""
    folder = ExperimentFolder(tmp_path / "x_1")
    plan = ExperimentPlan.of(options(seeds=(0, 1)), folder.path)
    cells = [write_run(cell.folder, [1.0], cell.seed) for cell in plan.cells]
    folder.write("config.json", plan.to_json())
    plan.suite("test").write_text("")
    assert [Path(run) for run in records.runs_below(epath.Path(tmp_path))] == cells


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ()}, "`--architectures` is missing: names of architectures"),
        ({"test_dataset": ""}, "`--test-dataset` is missing: unseen levels"),
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
    assert from_mapping(found.to_json(), "config.json") == found
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


def test_an_estimate_multiplies_the_time_of_one_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {"gcn": 500.0, "mlp_baseline": 2000.0}

    def measure(config: Config, seconds: float) -> TrainingCost:
        return TrainingCost(config.env.num_envs, rates[config.network.architecture], None)

    monkeypatch.setattr(architectures, "training_cost", measure)
    monkeypatch.setattr(ExperimentPlan, "require_networks", lambda plan: None)  # builds them in a process
    given = options(architectures=tuple(rates), seeds=(0, 1), total_timesteps=3_600_000, num_envs=8)
    assert show_estimates(ExperimentPlan.of(given, tmp_path)) == 0
    # 3.6 M steps at 500 a second are 2 hours, at 2,000 half an hour; there are two cells of each.
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["gcn", "2", "8", "4.00"] in rows
    assert ["mlp_baseline", "2", "8", "1.00"] in rows
    assert rows[-1][0] == "5.00"


def test_a_cell_with_pretraining_is_one_more_command(tmp_path: Path) -> None:
    plan = ExperimentPlan.of(options(replay_data_dir="demos", bc_epochs=3), tmp_path)
    (cell,) = plan.cells
    command, *arguments = plan.commands(cell)["pretrain"]
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
    assert message in refused(capfd, "experiment", *arguments)


@pytest.mark.slow
def test_a_wrong_architecture_is_answered_with_the_list(capfd: pytest.CaptureFixture[str], tmp_path) -> None:
    given = [
        "--experiment-name=x",
        "--train-dataset=train",
        "--test-dataset=test",
        f"--output-dir={tmp_path}",
    ]
    assert main(["jaxrl experiment", *given, "--architectures", "gcm", "--num-gpus", "0"]) == 2
    assert "is no architecture, nor module:attribute; did you mean `gcn`?" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def finish(plan: ExperimentPlan, cell: ExperimentCell, success: list[float]) -> None:
    """Leaves what a cell has left that has trained with such success on test levels."""
    cell.folder.mkdir(parents=True)
    (cell.folder / "config.json").write_text("{}")
    rows = [
        {"step": 100 * (i + 1), "time": float(i), "eval/all/success_rate": x, "eval/return": 10 * x}
        for i, x in enumerate(success)
    ]
    (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite = {name: {"success_rate": success[-1], "episodes": 50} for name in ("all", "simple")}
    found = Measured(
        test=suite,
        train=suite,
        actions="greedy",
        steps_to_threshold=100,
        p50_ms=0.25,
        p50_spread_ms=0.01,
        parameters=1234,
        seconds=90.0,
    )
    write_results(cell, found)


@pytest.mark.parametrize(("mode", "success"), [("greedy", 0.0), ("sampled", 0.7)])
def test_success_is_that_of_the_mode_that_training_judged_by(
    tmp_path: Path, mode: str, success: float
) -> None:
    """A policy that gets stuck with its most likely actions is not judged by these alone."""
    modes = {
        name: {"all": {"success_rate": x}, "categories": {"simple": {"success_rate": x, "levels": []}}}
        for name, x in (("greedy", 0.0), ("sampled", 0.7))
    }
    file = tmp_path / "evaluations/suite-test-step-64.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mode": mode, "modes": modes}))
    of_mode = {"success_rate": success}
    assert of_suite(tmp_path, "test") == (mode, {"all": of_mode, "simple": of_mode})


@pytest.mark.slow
def test_finished_failed_and_waiting_cells_are_reported(tmp_path: Path) -> None:
    """Two seeds of one architecture have finished, one cell fails, and another process trains the last."""
    given = options(architectures=("gcn", "mlp_baseline"), seeds=(0, 1), jobs=2)
    folder = ExperimentFolder(tmp_path / "x_1")
    plan = ExperimentPlan.of(given, folder.path)
    for cell, success in zip(plan.cells[:2], ([0.0, 0.5], [0.5, 1.0]), strict=True):
        finish(plan, cell, success)
    blocked, trained = plan.cells[2:]
    blocked.folder.parent.mkdir(parents=True)
    blocked.folder.with_suffix(".lock").mkdir()
    lock = PlannedRun(trained.name, plan.config(trained, with_suite=False), trained.folder).take_lock()
    assert lock is not None
    interruption, said = Interruption(), []

    def say(line: str) -> None:
        said.append(line)
        if (
            sum(any(word in x for word in ("finished before", "failed:", "another process")) for x in said)
            == 4
        ):
            interruption.adopt(signal.SIGTERM)

    matrix, failures = run(given, folder, interruption, say, "experiment x.yaml")
    lock.close()
    assert list(failures) == ["mlp_baseline/no_pretrain/seed_0"]
    assert "Is a directory" in failures["mlp_baseline/no_pretrain/seed_0"]
    assert "mlp_baseline/no_pretrain/seed_1: another process still trains it, and is waited for" in said
    cells = json.loads((folder.path / "all_results.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["finished", "finished", "failed", "unfinished"]
    assert matrix.rows[0].values["success"] == 0.75
    page = (folder.path / "report.html").read_text()
    assert "2 of 4 cells finished" in page
    assert '<div class="problems">failed:\n<ul><li>mlp_baseline/no_pretrain/seed_0: ' in page
    assert page.count("data:image/svg+xml") == 2
    for text in ("75%", "1,234", "unfinished", "Is a directory", "jaxrl evaluate", "cores", "num_envs"):
        assert text in page
    assert (folder.path / "decision_matrix.html").exists()
    mean = read_tensorboard(folder.path / "comparison" / "gcn-no_pretrain")
    assert mean == {
        "comparison/success_rate": [(100, 0.25), (200, 0.75)],
        "comparison/return": [(100, 2.5), (200, 7.5)],
    }
    one = read_tensorboard(folder.path / "comparison" / "gcn-no_pretrain-seed_0")
    assert one["comparison/success_rate"] == [(100, 0.0), (200, 0.5)]
    # What is copied to a bucket is the experiment's own; cells have copies of their own.
    copy_files(folder.path, str(tmp_path / "copy"))
    copied = {file.name for file in (tmp_path / "copy").iterdir()}
    assert copied >= {"config.json", "all_results.json", "report.html", "decision_matrix.md", "x.log"}
    assert not any("gcn" in name for name in copied)


def read_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The points of each tag."""
    points: dict[str, list[tuple[int, float]]] = {}
    for tag, step, value in sorted(set().union(*map(_scalars_of, folder.glob("events.*")))):
        points.setdefault(tag, []).append((step, value))
    return points


def test_a_mean_is_over_the_steps_that_all_seeds_have() -> None:
    curve = group_curve(
        [
            (np.array([10.0, 20.0, 30.0]), np.array([1.0, 2.0, 3.0])),
            (np.array([10.0, 30.0]), np.array([5.0, 9.0])),
        ]
    )
    np.testing.assert_array_equal(curve.x, [10, 30])
    np.testing.assert_array_equal(curve.value, [3, 6])
    np.testing.assert_array_equal(curve.low, [1, 3])
    np.testing.assert_array_equal(curve.high, [5, 9])


@pytest.mark.parametrize(
    ("changes", "gpus", "expected"),
    [
        ({}, 8, 1),
        ({"num_devices": 2}, 8, 4),
        ({"num_devices": 2}, 1, 1),
        ({"jobs": 3}, 0, 3),
        ({"num_devices": 0}, 0, 1),
    ],
)
def test_as_many_cells_at_a_time_as_have_devices(changes, gpus, expected) -> None:
    assert jobs_of(options(**changes), gpus) == expected
