"""Experiments on Ray: options, and cells that a cluster runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from jaxrl.config import ConfigError
from jaxrl.experiments.cells import ExperimentFolder, ExperimentPlan
from jaxrl.experiments.experiment import run
from jaxrl.runs.signals import Interruption
from tests.experiments.test_experiment import finish, options


def test_options_that_ray_has_no_use_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="`--jobs` is for this machine"):
        options(ray_address="auto", jobs=2)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="`--ray-address` needs the `ray` extra: .*pip install"):
        run(options(ray_address="auto"), ExperimentFolder(tmp_path / "x"), Interruption(), print, "")
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_cluster_runs_the_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has finished before, and one fails on its node, with the reason."""
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    folder, said = ExperimentFolder(tmp_path / "x_1"), []
    given = options(ray_address="local", seeds=(0, 1), architectures=("mlp_baseline",))
    done, blocked = ExperimentPlan.of(given, folder.path).cells
    finish(ExperimentPlan.of(given, folder.path), done, [0.5])
    blocked.folder.with_suffix(".lock").mkdir()
    _, failures = run(given, folder, Interruption(), said.append, "experiment")
    assert list(failures) == [blocked.name]
    assert "Is a directory" in failures[blocked.name]
    assert f"{done.name}: finished before" in said
    assert any(line.startswith(f"{blocked.name}: on ") for line in said)
    cells = json.loads((folder.path / "all_results.json").read_text())["cells"]
    assert [cell["state"] for cell in cells] == ["finished", "failed"]


@pytest.mark.slow
def test_a_cluster_that_is_too_small_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    given = options(ray_address="local", cpus_per_cell=1000)
    with pytest.raises(ConfigError, match="`--cpus-per-cell` .=1000.: no node of the cluster has more than"):
        run(given, ExperimentFolder(tmp_path / "x"), Interruption(), print, "")
