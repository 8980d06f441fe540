"""The locks, and the Pythons that take them."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The Pythons that take each lock.
LOCKS = {"requirements-3.11.lock": ("3.11",), "requirements.lock": ("3.12", "3.13", "3.14")}


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    monkeypatch.chdir(ROOT)
    return importlib.import_module("pythons")


def pins(lock: str) -> dict[str, Version]:
    lines = [line for line in (ROOT / lock).read_text().splitlines() if not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    return {canonicalize_name(name): Version(version) for name, version in found.items()}


def requirements(extras: tuple[str, ...], python: str) -> list[Requirement]:
    """Those of the package with its extras, and with the extras that these name, on Linux."""
    found, left = list(PROJECT["dependencies"]), list(extras)
    while left:
        for text in PROJECT["optional-dependencies"][left.pop()]:
            requirement = Requirement(text)
            own = canonicalize_name(requirement.name) == PROJECT["name"]
            left += sorted(requirement.extras) if own else []
            found += [] if own else [text]
    linux = {"python_version": python, "sys_platform": "linux", "platform_machine": "x86_64"}
    return [x for x in map(Requirement, found) if x.marker is None or x.marker.evaluate(linux)]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_pyproject_asks_for(lock: str) -> None:
    pinned = pins(lock)
    for python in LOCKS[lock]:
        for requirement in requirements(("dev", "docs", "release", "tpu"), python):
            name = canonicalize_name(requirement.name)
            # What later Pythons alone need, the lock of their oldest leaves open.
            if name in pinned or requirement.marker is None:
                assert requirement.specifier.contains(pinned[name]), f"{requirement} in {lock}"
    assert pinned["jaxlib"] == pinned["jax"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_says_versions_and_no_place(lock: str) -> None:
    """An index or a folder of the machine that made it is nowhere else."""
    for line in (ROOT / lock).read_text().splitlines():
        assert re.fullmatch(r"#.*|[\w.-]+==[\w.!]+", line), line
        assert "://" not in line


def test_the_stacks_differ_and_linters_do_not() -> None:
    oldest, newest = map(pins, LOCKS)
    assert oldest["jax"] < newest["jax"]
    for tool in ("ruff", "mypy"):
        assert oldest[tool] == newest[tool]


def test_every_supported_python_has_a_lock(pythons: ModuleType) -> None:
    check = importlib.import_module("check_python")
    supported = [(3, minor) for minor in range(check.OLDEST[1], check.NEWEST[1] + 1)]
    taken = {f"3.{minor}": pythons.lock_of((3, minor)) for _, minor in supported}
    assert taken == {python: lock for lock, versions in LOCKS.items() for python in versions}
    assert PROJECT["requires-python"] == f">=3.{check.OLDEST[1]},<3.{check.NEWEST[1] + 1}"


def test_pythons_are_found_wherever_they_are(
    pythons: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One for each version; not what does not run, is too old or cannot make an environment."""

    def put(folder: str, name: str, said: str) -> None:
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{said}\n")
        path.chmod(0o755)

    put("shims", "python3.14", "echo no such version >&2; exit 127")
    put("bin", "python3.12", "echo 3 12 1")
    put("bin", "python3", "echo")  # what the probe prints where jaxrl would not run
    put("pyenv/versions/3.13.0/bin", "python3", "echo 3 13 0")
    put("pyenv/versions/3.13.2/bin", "python3", "echo 3 13 2")
    put("uv/cpython-3.11.9-linux/bin", "python3", "echo 3 11 9")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "shims"), str(tmp_path / "bin")]))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert [str(python) for python in pythons.found()] == ["Python 3.11.9", "Python 3.12.1", "Python 3.13.2"]


def test_this_python_is_supported(pythons: ModuleType) -> None:
    assert pythons.probed(sys.executable).version == tuple(sys.version_info[:3])
    assert pythons.probed(str(ROOT / "no/python")) is None


def test_a_lock_without_its_python_is_named_in_one_line(
    pythons: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = importlib.import_module("lock")
    for version, missing in (((3, 13, 0), "3.11"), ((3, 11, 7), "3.12 to 3.14")):
        monkeypatch.setattr(lock, "found", lambda version=version: [pythons.Python(version, "python3")])
        with pytest.raises(SystemExit, match=f"^error: no Python {re.escape(missing)} on PATH[^\n]*$"):
            lock.main()


def test_pins_are_those_of_the_report(pythons: ModuleType) -> None:
    found = {"six": "1.17.0", "Jinja2": "3.1.6", "jax": "0.11.2"}
    installed = [{"metadata": {"name": name, "version": x}} for name, x in found.items()]
    installed.append({"metadata": {"name": "jaxrl-recurrent", "version": "0.1.0"}})
    assert importlib.import_module("lock").pins(json.dumps({"install": installed})) == found
