"""Dockerfile, compose file and workflows name what exists."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from jaxrl.commands import COMMANDS
from jaxrl.config.files import shipped_names

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
    for name in ("train", "train-gpu", "pipeline", "tensorboard", "dashboard"):
        assert any(volume.startswith("runs:/workspace/runs") for volume in services[name]["volumes"])
    assert services["tensorboard"]["ports"] == ["127.0.0.1:6006:6006"]
    assert services["mlflow"]["ports"] == ["127.0.0.1:5000:5000"]
    assert services["train-gpu"]["profiles"] == ["gpu"]
    for name in ("train", "train-gpu", "dashboard"):
        assert services[name]["command"][0] in COMMANDS


def test_without_a_command_the_image_runs_the_pipeline_in_workspace() -> None:
    command = json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, flags=re.M)[-1])
    assert command[0] in COMMANDS
    config = command[1].removeprefix("--config=")
    assert (ROOT / config).is_file()
    assert "command" not in COMPOSE["services"]["pipeline"]
    assert "WORKDIR /workspace" in DOCKERFILE
    assert "EXPOSE 6006 8050" in DOCKERFILE


def test_the_dashboard_is_published_to_this_machine_alone() -> None:
    dashboard = COMPOSE["services"]["dashboard"]
    assert dashboard["ports"] == ["127.0.0.1:8050:8050"]
    assert {"--host=0.0.0.0", "--port=8050"} <= set(dashboard["command"])
    assert all(volume.endswith(":ro") for volume in dashboard["volumes"])


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


def test_the_workflow_trains_with_shipped_pipelines_and_keeps_the_model() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/train.yml").read_text())
    jobs = workflow["jobs"]
    named = re.findall(r"'([a-z]+)' \|\| '([a-z]+)'", jobs["train"]["env"]["PIPELINE"])
    assert set(named[0]) <= set(shipped_names("pipelines"))
    uploads = [s["with"] for s in jobs["train"]["steps"] if "upload-artifact" in s.get("uses", "")]
    assert {"name": "trained-model", "path": "results/models/", "if-no-files-found": "error"} in uploads
    for name in named[0]:
        definition = yaml.safe_load((ROOT / f"configs/pipelines/{name}.yaml").read_text())
        assert definition["deploy"]["enabled"] is True
        assert definition["deploy"].get("to", "results/models") == "results/models"
    assert jobs["deploy"]["environment"] == "production"
    assert "refs/heads/main" in jobs["deploy"]["if"]
