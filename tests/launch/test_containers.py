"""Dockerfile, compose file and workflows name what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from jaxrl.commands import COMMANDS

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_what_the_image_copies_is_let_through() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    copied = [
        word
        for line in re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, flags=re.M)
        for word in line.split()[:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_image_installs_extras_that_exist() -> None:
    defaults = re.findall(r"^ARG EXTRAS=(\S+)", DOCKERFILE, flags=re.M)
    services = COMPOSE["services"].values()
    built = [service["build"]["args"] for service in services if "build" in service]
    for extras in (*defaults, *(args["EXTRAS"] for args in built)):
        assert set(extras.split(",")) <= EXTRAS.keys()
    assert {args["VARIANT"] for args in built} == {"cpu", "cuda12"}
    assert re.search(r"^USER 1000", DOCKERFILE, flags=re.M)


def test_the_services_share_one_folder_of_runs() -> None:
    services = COMPOSE["services"]
    for name in ("train", "train-gpu", "tensorboard"):
        assert any(volume.startswith("runs:/app/runs") for volume in services[name]["volumes"])
    assert services["tensorboard"]["ports"] == ["127.0.0.1:6006:6006"]
    assert services["mlflow"]["ports"] == ["127.0.0.1:5000:5000"]
    assert services["train-gpu"]["profiles"] == ["gpu"]
    for name in ("train", "train-gpu"):
        assert services[name]["command"][0] in COMMANDS


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_the_workflows_run_what_exists(workflow: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    commands = "\n".join(step.get("run", "") for step in _steps(workflow))
    for target in re.findall(r"\bmake ([a-z-]+)", commands):
        assert target in targets
    for command in re.findall(r"/jaxrl ([a-z-]+)", commands):
        assert command in COMMANDS
    for script in re.findall(r"\bbash (\S+)", commands):
        assert (ROOT / script).exists()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_to_a_commit(workflow: Path) -> None:
    """A tag can be moved to other code; the version stands beside the commit, for people."""
    used = re.findall(r"uses: (.*)", workflow.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[\d.]+", action), action
