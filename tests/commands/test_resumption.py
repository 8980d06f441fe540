"""`--resume`: which run goes on, with which configuration, and the command that a run prints for it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrl.commands import resumption, run_arguments
from jaxrl.config import ConfigError, check_config, to_json
from jaxrl.config.files import load_config
from jaxrl.runs.executor import RunNames
from jaxrl.training.run import RunOutcome
from tests.commands.refusals import refused


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_run(path: str, age: float = 0.0, **changes: Any) -> str:
    """A run's folder of the config ppo, last written to `age` seconds ago."""
    config = load_config("ppo")
    config.update_from_flattened_dict(changes)
    Path(path).mkdir(parents=True)
    file = Path(path, "config.json")
    file.write_text(json.dumps(to_json(check_config(config))))
    time = file.stat().st_mtime - age
    os.utime(file, (time, time))
    return path


def parsed(*arguments: str) -> run_arguments.Arguments:
    return run_arguments.parse_training(["jaxrl train", *arguments])


def test_latest_run_of_the_config_goes_on() -> None:
    make_run("runs/ppo/1", age=30)
    latest = make_run("runs/ppo/3", age=20)
    make_run("runs/ppo_mlp/2", age=10)
    make_run("runs/ppo/2", age=40)
    arguments = parsed("ppo", "--resume", "--config.stop.steps=5")
    assert arguments.workdir == latest
    assert arguments.config.stop.steps == 5


def test_latest_run_is_one_that_can_go_on() -> None:
    first = make_run("runs/ppo/1", age=30, seed=1)
    make_run("runs/ppo/2", age=20, seed=2)
    assert parsed("--resume", "ppo", "--config.seed=1").workdir == first
    with pytest.raises(ConfigError, match=r"the latest, runs/ppo/2, has `seed` \(=2 there, 3 now\)$"):
        parsed("ppo", "--resume", "--config.seed=3")


def test_without_a_config_the_run_brings_its_own() -> None:
    make_run("runs/ppo/1", age=30, **{"ppo.gamma": 0.5, "seed": 7})
    latest = make_run("elsewhere", **{"ppo.gamma": 0.75, "network.hidden_sizes": (3, 4)})
    arguments = parsed(f"--resume={latest}", "--config.stop.seconds=9")
    assert arguments.workdir == latest
    config = check_config(arguments.config)
    assert (config.ppo.gamma, config.network.hidden_sizes, config.stop.seconds) == (0.75, (3, 4), 9.0)
    assert config.env.wrappers == ("select_observation(indices=(0, 2))",)
    assert arguments.notes == ("resuming elsewhere",)
    assert parsed("--resume").config.seed == 7


def test_home_of_the_user(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("HOME", str(folder))
    latest = make_run("elsewhere")
    assert parsed("--resume=~/elsewhere").workdir == str(folder / latest)
    assert parsed("ppo", "--workdir=~/new").workdir == str(folder / "new")


def test_a_folder_that_holds_runs_is_not_trained_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("runs/ppo/1")
    for place in ("runs", "runs/ppo", "./runs"):
        end = f"(='{place}') holds runs, such as runs/ppo/1: name another folder\n"
        for command in (["train", "ppo"], ["pretrain", "ppo", "--data=data"]):
            assert refused(capsys, *command, f"--workdir={place}") == f"error: `--workdir` {end}"
    # A search first makes its environments, in a process.
    monkeypatch.setattr(RunNames, "of", lambda configs: RunNames((), (), ()))
    Path("space.json").write_text('{"ppo.gamma": [0.9]}')
    # One short trial, should it not be refused.
    search = ["search", "ppo", "--space=space.json", "--trials=1", "--verify=0", "--config.stop.steps=4096"]
    assert "holds runs, such as runs/ppo/1: name" in refused(capsys, *search, "--workdir=runs")
    assert "(='runs/ppo/1') is a run: name" in refused(capsys, *search, "--workdir=runs/ppo/1")
    export = ["export", "runs/ppo/1", "--format=numpy", "--output=runs/ppo/1"]
    assert refused(capsys, *export).startswith("error: `--output` (='runs/ppo/1') is a run: name another")
    assert [path.name for path in Path("runs").rglob("*")] == ["ppo", "1", "config.json"]


def test_folder_of_the_run_and_resume_are_one_run() -> None:
    run = make_run("elsewhere/mine", **{"ppo.gamma": 0.75})
    for flags in (["--resume"], ["--resume=elsewhere/../elsewhere/mine"]):
        arguments = parsed(f"--workdir={run}", *flags, "--config.stop.steps=5")
        assert (arguments.workdir, arguments.config.ppo.gamma) == (run, 0.75)
        assert arguments.config.stop.steps == 5


@pytest.mark.parametrize(
    ("path", "source", "name"),
    [
        ("elsewhere/mine", "elsewhere/mine", "mine"),
        ("runs/ppo/2", "runs/ppo/2/", "ppo"),
        ("runs/ppo/3", "runs/ppo/3/checkpoints/128", "ppo"),
    ],
)
def test_continued_run_brings_its_own_configuration(path: str, source: str, name: str) -> None:
    make_run(path, **{"ppo.gamma": 0.75, "seed": 7})
    Path(path, "checkpoints", "128").mkdir(parents=True)
    arguments = parsed(f"--resume-from={source}", "--steps=99")
    config = check_config(arguments.config)
    assert (config.ppo.gamma, config.seed, config.stop.steps) == (0.75, 7, 99)
    assert config.resume_from == source
    assert os.path.dirname(arguments.workdir) == os.path.join("runs", name)
    assert arguments.notes == (f"continuing {path}, with its configuration",)
    assert parsed("ppo", f"--resume-from={source}").config.ppo.gamma == 0.99


def test_step_that_is_missing_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    for step in ("900", "1000", "unfinished"):
        Path("run/checkpoints", step).mkdir(parents=True)
    for flag in ("--resume-from", "--config.init_from"):
        message = refused(capsys, "train", "ppo", f"{flag}=run/checkpoints/77")
        assert message.endswith("must be a folder; available steps: 900, 1000\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume-from=nowhere"], "`resume_from` (='nowhere') must be a folder"),
        (["--resume-from=broken"], "`--resume-from` (=broken): config.json cannot be read"),
        (["--workdir=nowhere", "--resume"], "`--resume` (=nowhere) is no folder"),
        (["--resume"], "`--resume`: there is no run in runs"),
        (["ppo", "--resume"], "`--resume`: there is no run of this config in runs/ppo"),
        (["ppo", "--resume=nowhere"], "`--resume` (=nowhere) is no folder"),
        (["--resume=nowhere"], "`--resume` (=nowhere) is no folder"),
        (["ppo", "--resume="], "`--resume=` needs a folder"),
        (["ppo", "--resume", "--resume=a"], "`--resume` comes twice"),
        (["ppo", "--resume=a", "--workdir=b"], "both name a folder"),
        (["--resume=broken"], "`--resume` (=broken): config.json cannot be read"),
        (["--resume=list"], "`--resume` (=list): config.json cannot be read: it must hold a JSON object"),
    ],
)
def test_what_cannot_be_resumed(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("broken", "{"), ("list", "[]")):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(text)
    assert message in refused(capsys, "train", *arguments)


def test_stored_configuration_imports_nothing_by_itself(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('imported')\n")
    make_run("run", **{"network.encoder": "evil:encoder"})
    with pytest.raises(ConfigError, match="names modules, which are only imported if the command line"):
        parsed("--resume=run")
    arguments = parsed("ppo", "--config.network.encoder=evil:encoder", "--resume=run")
    assert arguments.workdir == "run"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["jaxrl train", "ppo"], ["ppo"]),
        (["jaxrl train", "ppo", "--workdir=old", "--config.seed=1"], ["ppo", "--config.seed=1"]),
        (["jaxrl train", "--workdir", "old", "ppo", "--resume"], ["ppo"]),
        (["jaxrl train", "--resume=other"], []),
        (["jaxrl train", "--env=my:Env(x=1)"], ["--env=my:Env(x=1)"]),
    ],
)
def test_command_that_resumes(argv: list[str], expected: list[str]) -> None:
    words = shlex.split(resumption.command(argv, "a folder"))
    program = [*resumption.jaxrl(), "train"]
    assert words == [*program, *expected, "--resume=a folder"]


def test_command_that_resumes_a_module() -> None:
    words = shlex.split(resumption.command(["/somewhere/jaxrl/main.py", "--config=ppo"], "run"))
    assert words[1:] == ["-m", "jaxrl.main", "--config=ppo", "--resume=run"]
    assert words[0] in ("python", sys.executable)


def test_end_of_a_run_says_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"tensorboard": True}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed.get(name))
    done = RunOutcome(
        0, "runs/my run", resumable=False, needs_trust=False, has_tensorboard=True, is_first=True
    )
    text = "\n".join(resumption.next_steps(done, ["jaxrl train", "ppo"]))
    assert "run folder:  runs/my run" in text
    assert "evaluate '--workdir=runs/my run'\n" in text
    assert "watch 'runs/my run'" in text
    assert "tensorboard '--logdir=runs/my run/tensorboard'" in text
    assert "resume" not in text
    installed.clear()
    assert "tensorboard" not in "\n".join(resumption.next_steps(done, ["jaxrl train", "ppo"]))
    own = dataclasses.replace(done, needs_trust=True)
    (line,) = [x for x in resumption.next_steps(own, ["jaxrl train", "ppo"]) if x.startswith("evaluate:")]
    assert line.endswith("--workdir=runs/my run' --trust")
    assert "--trust" not in text
    stopped = dataclasses.replace(done, exit_code=143, resumable=True)
    text = "\n".join(resumption.next_steps(stopped, ["jaxrl train", "ppo"]))
    assert "train ppo '--resume=runs/my run'" in text


def test_commands_to_type_are_of_this_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments made from one Python link to one file; the program of another lacks our packages."""
    ours, other, links = (folder / name for name in ("ours", "other", "links"))
    for place in (ours, other, links):
        place.mkdir()
    for place in (ours, other):
        (place / "python").symlink_to(os.path.realpath(sys.executable))
        (place / "jaxrl").write_text("#!/bin/sh\n")
        (place / "jaxrl").chmod(0o755)
    (links / "jaxrl").symlink_to(ours / "jaxrl")
    here = str(ours / "python")
    monkeypatch.setattr(sys, "executable", here)
    words = {}
    for place in (ours, other, links):
        monkeypatch.setenv("PATH", str(place))
        words[place] = (resumption.python(), resumption.jaxrl())
    assert words[ours] == ("python", ["jaxrl"])
    assert words[other] == (here, [here, "-m", "jaxrl"])
    assert words[links] == (here, ["jaxrl"])
