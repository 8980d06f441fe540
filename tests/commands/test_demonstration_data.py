"""`jaxrl prepare-data`, `record`, `verify-data`, `pretrain` on episodes: what they write, say, refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.commands import prepare_data, verify_data
from jaxrl.envs import registry
from jaxrl.experience.demonstrations import read_dataset
from tests.commands.refusals import refused

ENV = "jaxrl:ProbeMemory"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "episodes"
    arguments = (f"--env-name={ENV}", f"--output-dir={folder}", "--episodes=7", "--seed=5")
    assert prepare_data.main(["jaxrl prepare-data", *arguments]) == 0
    return folder


def verify(folder: Path, *more: str) -> int:
    return verify_data.main(["jaxrl verify-data", f"--data-dir={folder}", *more])


@pytest.mark.slow
def test_what_is_written(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    assert (manifest["env"], manifest["player"], manifest["seed"]) == (ENV, "random", 5)
    assert len(manifest["episodes"]) == 7
    assert verify(written) == 0
    said = capsys.readouterr().out
    assert "episodes  7, " in said
    assert "players   random" in said
    found = read_dataset(str(written), registry.spec_of(ENV), verify=True)
    assert [len(e) for e in found.episodes] == [x["length"] for x in manifest["episodes"].values()]


def test_the_first_fault_is_one_line_with_its_file(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    with np.load(folder / "000003.npz") as stored:
        arrays: dict[str, Any] = dict(stored)
    arrays["rewards"][0] = np.nan
    np.savez(folder / "000003.npz", **arrays)
    assert verify(folder) == 1
    said = capsys.readouterr().err
    assert said == f"error: {folder}/000003.npz: rewards must be finite; row 0 is not\n"
    # Of another environment.
    assert verify(written, "--env=jaxrl:ProbeContinuous") == 1
    assert "must" in capsys.readouterr().err


def test_custom_files_as_the_docs_write_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/imitation.md").read_text()
    code = page.partition("### Custom files")[2].partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    folder = tmp_path / "data/mine"
    assert verify(folder, "--env=gymnasium:CartPole-v1") == 0
    said = capsys.readouterr().out
    assert "episodes  10, " in said
    assert "all are complete, finite, and of the environment's spaces" in said
    assert "note" not in said
    assert verify(folder) == 2
    assert "`--env` is missing: no manifest names the environment" in capsys.readouterr().err
    with np.load(folder / "000003.npz") as stored:
        arrays: dict[str, Any] = dict(stored)
    np.savez(folder / "000003.npz", **(arrays | {"rewards": arrays["rewards"][:-1]}))
    assert verify(folder, "--env=gymnasium:CartPole-v1") == 1
    assert "000003.npz: rewards" in capsys.readouterr().err


def test_a_manifest_imports_no_module(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "copy"))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"env": "no_such_module:Env"}))
    assert verify(folder) == 2
    assert "names the module of 'no_such_module:Env', which is not imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "`--data` is missing"),
        (["--data=nowhere"], "`--data`: nowhere: is no folder of episodes"),
        (["--data=expert.pkl"], "`--data`: expert.pkl: pickled files can run any code and are not read"),
        (
            ["--data={data}", "--class-weights=some"],
            "`behavior_cloning.class_weights` (='some') must be one of",
        ),
        (["--data={data}", "--bc-epochs=0"], "bc-epochs"),
    ],
)
def test_bad_input_of_pretrain(
    arguments: list[str], message: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(data=written) for argument in arguments]
    run = [f"--env={ENV}", f"--workdir={tmp_path / 'run'}"]
    assert message in refused(capsys, "pretrain", "--config=ppo_mlp", *run, *given)


def test_bad_input_of_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "`--workdir` is missing" in refused(capsys, "record", f"--output={tmp_path / 'x'}")
    assert "`--output` is missing" in refused(capsys, "record", str(tmp_path))
    assert "holds no config.json" in refused(capsys, "record", str(tmp_path), f"--output={tmp_path / 'x'}")
