"""Proves the wheel on another Python than this one, whose newest versions may be others: `make smoke`.

  python .ci/smoke.py                   with a Python on PATH, of pyenv or of uv: of the other lock, if it can
  python .ci/smoke.py --python=PYTHON   with that one

Builds the wheel, installs it into an empty environment without a lock, and tries there in tiny runs what
users do, and whether runs and exports of this Python go on there. A line for each check; the last one counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import packages
import smoke_checks
from pythons import Python, found, lock_of, probed
from smoke_checks import Check, Stack

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "onnx,serve"
_WORKERS = 2
_LAST = 25  # lines of what a check said that failed
_VERSIONS = """
from jaxrl.config import versions
found = versions()
print(*(f"{name} {found[name]}" for name in ("jax", "flax", "numpy", "envpool") if name in found), sep=", ")
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 as well if there is no other Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="the Python to prove the wheel on (default: another that is found)")
    named = parser.parse_args(argv).python
    here = Python(tuple(sys.version_info[:3]), sys.executable)
    if named and (path := shutil.which(named)) is None:
        parser.error(f"{named} is no program")
    other = probed(str(path)) if named else another(here, found())
    if other is None and named:
        parser.error(f"{named} is no Python that jaxrl supports (.ci/check_python.py says why)")
    if other is None:
        print(f"smoke: not run: no supported Python but {here} is on PATH, of pyenv or of uv")
        return 0
    with tempfile.TemporaryDirectory(prefix="jaxrl-smoke-") as folder:
        return prove(_wheel(Path(folder)), other, Path(folder), here)


def another(here: Python, pythons: Sequence[Python]) -> Python | None:
    """The one to prove the wheel on: of another lock than `here`, and the newest of those."""
    others = [python for python in pythons if python.minor != here.minor]
    return max(others, key=lambda x: (lock_of(x.minor) != lock_of(here.minor), x), default=None)


def prove(wheel: Path, python: Python, folder: Path, here: Python | None = None) -> int:
    """Installs a wheel with a Python, and runs the checks there, and those between `here` and there."""
    began = time.monotonic()
    stack = Stack(str(python), str(install(wheel, python.path, folder)), folder)
    seconds = time.monotonic() - began
    print(f"smoke: {python} with {_versions(stack)}, the newest; installed in {seconds:.0f} s", flush=True)
    other = Stack(str(here), here.path, folder, str(ROOT)) if here else None
    if other:
        print(f"smoke: beside {here} with {_versions(other)}", flush=True)
    return run(smoke_checks.groups(stack, other))


def install(wheel: Path, python: str, folder: Path) -> Path:
    """The Python of an empty environment with the wheel, and what pip or uv takes for it today."""
    environment = folder / "environment"
    there = environment / "bin" / "python"
    _do([python, "-m", "venv", str(environment)])
    if packages.install(there, ["--quiet", f"{wheel}[{EXTRAS}]"], _do):
        sys.exit("error: the wheel cannot be installed; see above")
    return there


def run(groups: Sequence[Sequence[Check]]) -> int:
    """Runs all checks, two groups at a time, and prints a line for each; returns the exit code."""
    began, printing = time.monotonic(), Lock()
    failed: list[str] = []

    def attempt(check: Check) -> None:
        started, why = time.monotonic(), ""
        try:
            check.attempt()
        except Exception as error:
            why = "\n".join(str(error).rstrip().splitlines()[-_LAST:]) or repr(error)
        with printing:
            print(
                f"{'FAILED' if why else 'ok':<6} {time.monotonic() - started:6.1f} s  {check.name}",
                flush=True,
            )
            if why:
                failed.append(check.name)
                print("".join(f"    | {line}\n" for line in why.splitlines()), end="", flush=True)

    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(lambda group: list(map(attempt, group)), groups))
    print(f"smoke: {time.monotonic() - began:.0f} s" + "".join(f"\n  failed: {name}" for name in failed))
    print(f"{sum(map(len, groups)) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


def _wheel(folder: Path) -> Path:
    """A wheel of this checkout. From a copy: setuptools would leave build/, and read it the next time."""
    source = folder / "source"
    for name in ("jaxrl", "envs", "configs", "launch", "docs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _do([*pip, "--wheel-dir", str(folder), str(source)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def _versions(stack: Stack) -> str:
    return stack.run("-c", _VERSIONS).strip()


def _do(command: list[str]) -> int:
    """Runs a command, and returns 0; one that fails ends the process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if code := subprocess.run(command, env=environment).returncode:
        sys.exit(f"error: `{' '.join(command)}` ended with {code}")
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
