"""Files, folders and command lines of other trainers are named for what they are."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

import jaxrl
from jaxrl.config import ConfigError
from jaxrl.runs.checkpoint import CheckpointError
from jaxrl.training.checkpoints import find_checkpoint
from tests.commands.refusals import refused


def make_sb3(folder: Path) -> Path:
    """A file with the names of what `model.save` of Stable-Baselines3 2 writes."""
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        for name in ("data", "policy.pth", "_stable_baselines3_version", "system_info.txt"):
            archive.writestr(name, "2.3.0")
    return folder / "model.zip"


def make_hydra(folder: Path) -> Path:
    (folder / "outputs" / ".hydra").mkdir(parents=True)
    (folder / "outputs" / ".hydra" / "config.yaml").write_text("lr: 1\n")
    return folder / "outputs"


def make_weights(folder: Path) -> Path:
    (folder / "ppo.cleanrl_model").write_bytes(b"weights")
    return folder / "ppo.cleanrl_model"


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (make_sb3, "is a model of Stable-Baselines3"),
        (make_hydra, "is the folder of a run that Hydra configured"),
        (make_weights, "holds the parameters of another trainer's network"),
    ],
)
def test_what_is_there_is_named(make, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path)
    with pytest.raises(ConfigError, match=kind):
        jaxrl.load(str(path))
    assert kind in refused(capsys, "evaluate", f"--workdir={path}")
    assert kind in refused(capsys, "train", str(path))


def test_another_archive_is_not_called_a_model(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("data", "")
    with pytest.raises(ConfigError, match="is a file, and a run is a folder"):
        jaxrl.load(str(tmp_path / "other.zip"))


def test_settings_and_exported_policies_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text("CartPole-v1:\n  n_envs: 8\n")
    with pytest.raises(ConfigError, match="settings are read by jaxrl train --config=FILE"):
        jaxrl.load(str(tmp_path / "ppo.yml"))
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"is an exported policy, .*docs/export\.md"):
        jaxrl.load(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("none", "is no folder"),
        ("study/trials/0000/checkpoints/64", "is inside of the run .*0000: name that"),
        ("study", "holds runs, such as .*study/trials/0000: name one of them"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate"],
        ["verify-checkpoint"],
        ["train", "--resume="],
    ],
)
def test_what_is_near_a_run_says_where_it_is(
    path: str,
    kind: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "study/trials/0000/checkpoints/64").mkdir(parents=True)
    for name in ("config.json", ".run"):
        (tmp_path / "study/trials/0000" / name).write_text("{}")
    monkeypatch.chdir(tmp_path)
    name, *flags = command
    message = refused(capsys, name, *([f"{flags[0]}{path}"] if flags else [path]))
    assert re.search(rf"\(={path}\) {kind}$", message.rstrip())
    with pytest.raises(CheckpointError, match=kind):
        find_checkpoint("init_from", path)


@pytest.mark.parametrize("start", [[], ["python", "cleanrl/ppo.py"]])
def test_command_line_of_cleanrl_is_answered_with_ours(
    start: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = "--env-id CartPole-v1 --total-timesteps 500000 --learning-rate=1e-3 --num-steps 64 --track"
    ours = (
        "`jaxrl train --env=CartPole-v1 --steps=500000 --learning-rate=1e-3 --config.ppo.rollout_length=64`"
    )
    message = refused(capsys, "train", *start, *line.split())
    assert (
        f"a command line of CleanRL, which reads here {ours}; see docs/coming_from.md for --track" in message
    )
