"""`benchmarks/learning_curves.py`: categories on rows of the project's own writer, and what is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from jaxrl.evaluation.suites.levels import Outcomes
from jaxrl.evaluation.suites.summary import metrics
from jaxrl.reporting.writers import JsonlWriter
from tests.benchmarks.loading import load


@pytest.fixture
def curves() -> Iterator[ModuleType]:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    module = load("learning_curves")
    yield module
    pyplot.close("all")


def played(success: list[bool], length: list[int], cost: list[float] | None = None) -> Outcomes:
    """Episodes of a level in which 100 steps count as 1."""
    return Outcomes(
        score=np.array(success, float),
        length=np.array(length, float),
        normalized=np.array(length) / 100,
        finished=np.ones(len(length), bool),
        success=np.array(success),
        cost=None if cost is None else np.array(cost, float),
    )


def write(folder: Path) -> None:
    """Two evaluations of a suite, with rows of training around them."""
    writer = JsonlWriter(folder / "metrics.jsonl")
    writer.write(50, {"episode/return": 0.5})
    early = {"simple": [played([False, False], [100, 100], [1, 0])], "maze": [played([False], [100])]}
    writer.write(100, {"eval/return": 0.0} | metrics(early))
    writer.write(150, {"episode/return": float("nan")})
    late = {"simple": [played([True, False], [25, 75], [0, 0])], "maze": [played([True], [250])]}
    writer.write(200, {"eval/return": 1.0} | metrics(late))
    writer.write(250, {"episode/return": 0.7})
    writer.close()


def test_categories(
    curves: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    picture = tmp_path / "picture.png"
    monkeypatch.setattr("sys.argv", ["learning_curves.py", "categories", f"--out={picture}", str(tmp_path)])
    curves.main()
    # Half of two episodes of 25 and 75 steps of 100; one of 250; all three: 2 of 3 in 350 / 3 steps.
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| simple | 0.50 | 1.00 | 1.00 | 50.0 |",
        "| maze | 1.00 | 0.40 | nan | 250.0 |",
        "| all | 0.67 | 0.57 | nan | 116.7 |",
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")

    import matplotlib.pyplot as plt

    lines = {
        (ax.get_title(), line.get_label()): np.array(line.get_xydata()).tolist()
        for ax in plt.gcf().axes
        for line in ax.get_lines()
    }
    assert lines["success_rate", "simple"] == [[100, 0], [200, 0.5]]
    assert lines["safety", "simple"] == [[100, 0.5], [200, 1]]
    assert lines["steps", "maze"] == [[100, 100], [200, 250]]
    assert lines["safety", "maze"] == []
    assert {label for _, label in lines} == {"simple", "maze"}


def test_a_run_without_a_suite(curves: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = JsonlWriter(tmp_path / "metrics.jsonl")
    writer.write(100, {"eval/return": 1.0})
    writer.close()
    monkeypatch.setattr("sys.argv", ["learning_curves.py", "categories", "--out=x.png", str(tmp_path)])
    with pytest.raises(SystemExit, match="no evaluation of a suite"):
        curves.main()


@pytest.mark.parametrize(
    ("experiment", "trained"),
    [
        (
            "ppo_mujoco:envpool:Hopper-v4",
            ["--config=configs/ppo_mujoco.py", "--config.env.name=envpool:Hopper-v4"],
        ),
        ("auto:envpool:Hopper-v4", ["train", "--env=envpool:Hopper-v4"]),
    ],
)
def test_an_experiment_names_a_config_or_leaves_it_to_the_environment(
    curves: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experiment: str, trained: list[str]
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> None:
        commands.append(command)
        raise InterruptedError

    monkeypatch.setattr(curves.subprocess, "run", run)
    arguments = ["learning_curves.py", "train", f"--runs={tmp_path}", "--seeds=1", experiment]
    monkeypatch.setattr("sys.argv", [*arguments, "--config.stop.steps=100"])
    with pytest.raises(InterruptedError):
        curves.main()
    folder = tmp_path / experiment.replace(":", "-") / "seed-0"
    assert commands[0][3:] == [*trained, f"--workdir={folder}", "--config.seed=0", "--config.stop.steps=100"]
