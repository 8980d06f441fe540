"""The package as `pip install` leaves it, away from any checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but what the wheel installs."""
    # Built from a copy: setuptools leaves its folder build/ beside the sources, and reads it the next time.
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for folder in ("jaxrl", "envs", "configs"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", f"--target={target}", str(source)]
    subprocess.run(pip, check=True, timeout=300)
    return target


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=installed, env=env, capture_output=True, text=True, timeout=120)


def test_shipped_configs_are_installed(installed: Path) -> None:
    for path in (ROOT / "configs").glob("*.py"):
        done = run(installed, "jaxrl", "train", path.stem, "--print-config")
        assert done.returncode == 0, done.stderr
        assert "def get_config()" in done.stdout


def test_all_that_is_not_code_is_installed(installed: Path) -> None:
    assert (installed / "jaxrl/py.typed").exists()
    assert (installed / "jaxrl/config/shipped/suites/cartpole.yaml").exists()
    assert (installed / "jaxrl/experiments/comparison/report.html").exists()
    assert (installed / "bin/jaxrl").exists()


def test_no_module_is_left_behind(installed: Path) -> None:
    for package in ("jaxrl", "envs"):
        here = {path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        assert here <= {path.relative_to(installed) for path in (installed / package).rglob("*.py")}


def test_no_package_has_a_name_that_others_may_want(installed: Path) -> None:
    packages = {path.name for path in installed.iterdir() if path.is_dir() and path.suffix != ".dist-info"}
    assert packages - {"bin", "__pycache__"} == {"jaxrl", "envs"}
