"""`make` and `.ci/install.py`: a target installs what it uses, nothing twice, and the lock of its Python."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, in a folder with the files that decide the versions."""
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    for name in ("pyproject.toml", "requirements.lock", "requirements-3.11.lock"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module("install")


@pytest.fixture
def asked(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The package as pip was asked for it, call by call; the environment is there but for its packages."""
    calls: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command[-1])
        return subprocess.CompletedProcess(command, 0)

    Path(".venv").mkdir()
    monkeypatch.setattr(
        install, "probed", lambda path: importlib.import_module("pythons").Python((3, 13, 0), path)
    )
    monkeypatch.setattr(install, "_pip", lambda command: run(command).returncode)
    monkeypatch.setattr(install.packages, "_own_uv", lambda python: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_more_extras_satisfy_fewer(install: ModuleType, asked: list[str]) -> None:
    for extras in [(), (), ("",), ("dev,tpu", "dev"), ("dev",), (), ("docs",), ("tpu", "docs")]:
        assert install.main(".venv", *extras) == 0
    assert asked == [".", ".[dev,tpu]", ".[dev,docs,tpu]"]


def test_new_requirements_are_installed_with_every_extra_that_was_there(
    install: ModuleType, asked: list[str]
) -> None:
    install.main(".venv", "dev")
    Path("requirements.lock").touch()
    install.main(".venv")
    assert asked == [".[dev]"]  # the same text
    Path("requirements.lock").write_text("numpy==2.0.0\n")
    install.main(".venv")
    install.main(".venv", "dev")
    assert asked == [".[dev]", ".[dev]"]


@pytest.mark.parametrize(
    ("version", "lock"),
    [
        ((3, 11, 7), "requirements-3.11.lock"),
        ((3, 12, 1), "requirements.lock"),
        ((3, 14, 0), "requirements.lock"),
    ],
)
def test_the_lock_is_that_of_the_environments_python(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], lock: str
) -> None:
    """Whatever Python runs the script; and a change of the other lock installs nothing."""
    asked: list[list[str]] = []
    python = importlib.import_module("pythons").Python(version, ".venv/bin/python")
    Path(".venv").mkdir()
    monkeypatch.setattr(install, "probed", lambda path: python)
    monkeypatch.setattr(install, "_pip", lambda command: asked.append(command) or 0)
    monkeypatch.setattr(install.packages, "_own_uv", lambda python: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    install.main(".venv", "dev")
    assert [word for word in asked[0] if word.endswith(".lock")] == [lock]
    (other,) = {"requirements.lock", "requirements-3.11.lock"} - {lock}
    for name, calls in ((other, 1), (lock, 2)):
        Path(name).write_text("numpy==2.0.0\n")
        install.main(".venv", "dev")
        assert len(asked) == calls


def test_an_installation_that_failed_is_tried_again(
    install: ModuleType, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(install, "_pip", lambda command: 7)
        assert install.main(".venv", "dev") == 7
    assert install.main(".venv", "dev") == 0
    assert asked == [".[dev]"]


def written(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_what_uv_cannot_install_pip_does(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "bin/python"
    asked: list[list[str]] = []

    def pip(command: list[str]) -> int:
        asked.append(command)
        return 0

    monkeypatch.setattr(shutil, "which", lambda name: None)
    written(python.with_name("uv"), 'echo "$@" >>asked; exit 2')
    assert install.packages.install(python, ["jaxrl"], pip) == 0
    assert Path("asked").read_text() == f"pip install --python {python} jaxrl\n"
    assert [command[-1] for command in asked] == ["jaxrl"]
    written(python.with_name("uv"), "exit 0")
    assert install.packages.install(python, ["jaxrl"], lambda command: 7) == 0


@pytest.mark.parametrize(
    ("settings", "has_uv"),
    [
        ("global.extra-index-url='file:///wheels'", True),
        ("global.index-url='https://mirror/simple'", False),
        (":env:.no-index='1'", False),
        ("user.proxy='http://proxy:3128'", False),
    ],
)
def test_uv_is_fetched_unless_pip_alone_knows_where_to_look(
    install: ModuleType, tmp_path: Path, settings: str, has_uv: bool
) -> None:
    python = tmp_path / "bin/python"
    # A Python whose pip has these settings, and makes what it installs.
    written(
        python, f'case "$*" in *config*) echo "{settings}";; *install*) touch {python.with_name("uv")};; esac'
    )
    assert install.packages._own_uv(python) == (str(python.with_name("uv")) if has_uv else None)


@pytest.mark.parametrize(
    ("target", "extras"),
    [("setup", ""), ("train", ""), ("lint", "dev"), ("test", "dev"), ("test-slow", "dev"), ("docs", "docs")],
)
def test_a_target_installs_what_it_uses(target: str, extras: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # `make test EXTRAS=tpu` hands its variables down to every make below it.
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "EXTRAS", "ARGS"):
        monkeypatch.delenv(name, raising=False)

    def installed(*variables: str) -> list[list[str]]:
        command = ["make", "-n", target, f"PYTHON={sys.executable}", *variables]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [words.splitlines()[0].split() for words in said.split("install.py .venv")[1:]]

    assert installed() == [extras.split()]
    assert installed("EXTRAS=dev,tpu") == [["dev,tpu", *extras.split()]]
