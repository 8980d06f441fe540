"""The supported Pythons of a machine, on PATH, of pyenv and of uv, and which lock each of them takes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEWEST_LOCK = "requirements.lock"
_NAMES = ("python3.14", "python3.13", "python3.12", "python3.11", "python3", "python")
# Prints the version of a Python that can be used. Without a global lock none can: envpool has no wheels.
_PROBE = """
import sys, sysconfig
sys.path.insert(0, sys.argv[1])
from check_python import lacks
if not lacks() and sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    print(*sys.version_info[:3])
"""


@dataclass(frozen=True, order=True)
class Python:
    """An interpreter; the newer one is the greater."""

    version: tuple[int, ...]
    path: str

    @property
    def minor(self) -> tuple[int, ...]:
        return self.version[:2]

    def __str__(self) -> str:
        return f"Python {'.'.join(map(str, self.version))}"


def lock_of(minor: Sequence[int]) -> str:
    """The file with the versions for a Python: one of its own, if there is one, or that of the newest."""
    own = f"requirements-{minor[0]}.{minor[1]}.lock"
    return own if Path(own).exists() else NEWEST_LOCK


def found() -> list[Python]:
    """One Python for each version that jaxrl supports, as far as there is one: the oldest first."""
    by_minor: dict[tuple[int, ...], Python] = {}
    for path in dict.fromkeys(_candidates()):
        if (python := probed(path)) and python.version > by_minor.get(python.minor, _NONE).version:
            by_minor[python.minor] = python
    return sorted(by_minor.values())


def probed(path: str) -> Python | None:
    """The Python at a path, if it really runs, is supported and can make an environment."""
    try:
        done = subprocess.run(
            [path, "-c", _PROBE, str(HERE)], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()
    return Python(version, path) if version else None


_NONE = Python((), "")


def _candidates() -> Iterator[str]:
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield from (str(path) for name in _NAMES if os.access(path := Path(folder, name), os.X_OK))
    pyenv = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python"
    for versions in (Path(pyenv, "versions"), Path(uv)):
        yield from map(str, sorted(versions.glob("*/bin/python3")))
