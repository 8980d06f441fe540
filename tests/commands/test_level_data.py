"""`jaxrl prepare-data` and `jaxrl verify-data`: what they write, find, say, and how they exit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxrl.commands import prepare_data, verify_data
from jaxrl.envs.native.platformer.generator import RECIPES
from jaxrl.envs.native.platformer.level import CATEGORIES
from jaxrl.envs.native.platformer.level_files import read_level
from tests.commands.refusals import refused


def prepare(*arguments: str) -> int:
    return prepare_data.main(["jaxrl prepare-data", *arguments])


def verify(folder: Path) -> int:
    return verify_data.main(["jaxrl verify-data", f"--data={folder}"])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder of levels. The solver is the real one; all categories are built like simple levels."""
    folder = tmp_path_factory.mktemp("data") / "levels"
    with pytest.MonkeyPatch.context() as patch:
        for category in CATEGORIES:
            patch.setitem(RECIPES, category, RECIPES["simple"])
        assert prepare("--env=jaxrl:Platformer", f"--output={folder}", "--levels=6", "--seed=5") == 0
    return folder


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "copy"))


def test_what_is_written(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    assert len(manifest["levels"]) == 11
    assert len({entry["digest"] for entry in manifest["levels"].values()}) == 11
    assert manifest["levels"]["train/simple/0001.json"]["category"] == "simple"
    assert set(manifest["levels"]["test/complex/0000.json"]) == {
        "category",
        "seed",
        "size",
        "optimal_steps",
        "digest",
    }
    assert verify(written) == 0
    assert "11 levels are as written" in capsys.readouterr().out


def edit(data: Path, name: str, **changes: object) -> None:
    content = json.loads((data / name).read_text())
    (data / name).write_text(json.dumps(content | changes))


def make_unsolvable(data: Path) -> None:
    """With a manifest that agrees: only playing the level can tell."""
    name = "train/medium/0000.json"
    level = read_level(data / name)
    edit(data, name, solution="1" * level.optimal_steps)


FAULTS: list[tuple[Callable[[Path], object], str]] = [
    (lambda data: shutil.rmtree(data / "train/medium"), "train/medium: the category is missing"),
    (lambda data: (data / "test/simple/0000.json").unlink(), "test/simple: the category is missing"),
    (lambda data: (data / "train/simple/0001.json").unlink(), "0001.json: is in manifest.json and not there"),
    (lambda data: (data / "train/simple/0009.json").write_text("{}"), "0009.json: is not in manifest.json"),
    (lambda data: (data / "train/simple/0000.json").write_text("{"), "train/simple/0000.json: is not JSON"),
    (lambda data: (data / "manifest.json").unlink(), "manifest.json: cannot be read"),
    (lambda data: (data / "manifest.json").write_text("[]"), "manifest.json: is no manifest"),
    (make_unsolvable, "train/medium/0000.json: cannot be solved"),
]


@pytest.mark.parametrize(("damage", "message"), FAULTS)
def test_faults_name_the_file(
    data: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], object], message: str
) -> None:
    damage(data)
    assert verify(data) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_changed_digest(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "test/complex/0000.json"
    rows = json.loads((data / name).read_text())["rows"]
    at = next(i for i, c in enumerate(rows[1]) if c == ".")
    rows[1] = rows[1][:at] + "x" + rows[1][at + 1 :]
    edit(data, name, rows=rows)
    assert verify(data) == 1
    assert "test/complex/0000.json: its digest is" in capsys.readouterr().err


def test_a_level_of_both_parts(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "test/simple/0000.json").write_text((data / "train/simple/0000.json").read_text())
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["levels"]["test/simple/0000.json"] = manifest["levels"]["train/simple/0000.json"]
    (data / "manifest.json").write_text(json.dumps(manifest))
    assert verify(data) == 1
    assert "is the same level as" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output=x"], "`--env` (='') is missing"),
        (["--env=jaxrl:Navigation", "--output=x", "--levels=9"], "`--levels` (=9) is for levels of"),
        (["--env=jaxrl:Platformer", "--env-name=CartPole-v1", "--output=x"], "set the same: leave one out"),
        (["--env=jaxrl:Platformer"], "`--output` is missing"),
        (["--env=jaxrl:Platformer", "--output=x", "--levels=3"], "levels"),
        (["--env=jaxrl:Platformer", "--output={full}"], "exists and is no empty folder"),
    ],
)
def test_bad_input(
    arguments: list[str],
    message: str,
    written: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = (argument.format(full=written) for argument in arguments)
    assert message in refused(capsys, "prepare-data", *given)
    assert not list(tmp_path.iterdir())


def test_bad_input_of_verify_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path / "nowhere") == 2
    assert "is no folder" in capsys.readouterr().err
    assert "`--data` is missing" in refused(capsys, "verify-data")
