"""Writes the locks: the newest versions that pyproject.toml admits, for Python 3.11 and for later ones.

Each is resolved for a Python of its own, by uv if it is there, else by pip. For the later ones that is the
oldest that is found, whose versions are there for all of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pythons import NEWEST_LOCK, Python, found

EXTRAS = "dev,docs,release,tpu"
HEADER = """\
# Versions that are known to work together on {pythons}, for `pip install -c {lock} -e '.[dev]'`.
# Constraints: what a platform does not need is not installed. Written by `make lock`; do not edit.
"""


def main() -> None:
    pythons = found()
    oldest = [python for python in pythons if python.minor == (3, 11)]
    later = [python for python in pythons if python.minor > (3, 11)]
    for name, which in (("3.11", oldest), ("3.12 to 3.14", later)):
        if not which:
            sys.exit(f"error: no Python {name} on PATH, of pyenv or of uv: `make lock` resolves on each")
    _write("requirements-3.11.lock", "Python 3.11", oldest[0])
    _write(NEWEST_LOCK, "Python 3.12 and later", later[0])


def _write(lock: str, pythons: str, python: Python) -> None:
    print(f"{lock}: resolving on {python}", flush=True)
    uv = shutil.which("uv")
    found = resolved_by_uv(uv, python) if uv else resolved_by_pip(python)
    lines = sorted((f"{name}=={version}" for name, version in found.items()), key=str.lower)
    Path(lock).write_text(HEADER.format(pythons=pythons, lock=lock) + "\n".join(lines) + "\n")


def resolved_by_uv(uv: str, python: Python) -> dict[str, str]:
    """The version of each package, in seconds."""
    extras = [f"--extra={extra}" for extra in EXTRAS.split(",")]
    plain = ["--quiet", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command = [uv, "pip", "compile", *plain, "--python", python.path, *extras, "pyproject.toml"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(line.split("==") for line in said.splitlines())


def resolved_by_pip(python: Python) -> dict[str, str]:
    """The same from what pip would install into an empty environment, which takes minutes."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python.path, "-m", "venv", folder], check=True)
        report = Path(folder, "report.json")
        pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # That of an older Python tries versions for an hour.
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        what = ["--dry-run", "--ignore-installed", "--report", str(report), "--editable", f".[{EXTRAS}]"]
        subprocess.run([*pip, *what], check=True)
        return pins(report.read_text())


def pins(report: str) -> dict[str, str]:
    """The version of each package in pip's installation report, but for this one."""
    installed = [item["metadata"] for item in json.loads(report)["install"]]
    return {x["name"]: x["version"] for x in installed if x["name"] != "jaxrl-recurrent"}


if __name__ == "__main__":
    main()
