"""Makes a virtual environment with the package, and says so: `python .ci/install.py VENV [EXTRAS]...`.

EXTRAS are names with commas between them. An environment that has them already, and perhaps more, is left
as it is. Needs nothing but Python.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import packages
from check_python import lacks
from pythons import lock_of, probed

RECORD = ".installed"  # in the environment: a digest of what decides the versions, and the extras
_TAIL = 30  # lines of pip's output that are shown when it fails


def main(venv: str, *extras: str) -> int:
    """Returns the exit code of what failed, or 0."""
    wanted = {name for names in extras for name in names.split(",") if name}
    python = Path(venv, "bin", "python")
    there = probed(str(python))
    # Of the environment's Python, which need not be the one that runs this.
    lock = lock_of(there.minor if there else sys.version_info[:2])
    before, is_current = installed(venv, lock) if there else (set(), False)
    if is_current and wanted <= before:
        return 0
    wanted |= before
    began = time.monotonic()
    uv = shutil.which("uv")
    if not there:
        print(f"[1/2] Making {venv} with Python {'.'.join(map(str, sys.version_info[:3]))}.", flush=True)
        # Tests and `make lock` call pip, which uv leaves out.
        make = (
            [uv, "venv", "--quiet", "--clear", "--seed", "--python", sys.executable, venv]
            if uv
            else [sys.executable, "-m", "venv", "--clear", venv]
        )
        if code := subprocess.run(make).returncode:
            return code
    else:
        print(f"[1/2] {venv} is there already.", flush=True)
    package = f"[{','.join(sorted(wanted))}]" if wanted else ""
    print(f"[2/2] Installing jaxrl{package}, in the versions of {lock}:")
    much = "650 MB or more" if wanted else "350 MB"
    print(f"      {much} to download the first time, which takes a minute or some.", flush=True)
    code = packages.install(python, ["--constraint", lock, "--editable", f".{package}"], _pip)
    if code:
        print("error: the packages could not be installed; see above", file=sys.stderr)
        return code
    Path(venv, RECORD).write_text(f"{_digest(lock)}\n{','.join(sorted(wanted))}\n")
    seconds = time.monotonic() - began
    print(f"Ready after {seconds:.0f} s. `source {venv}/bin/activate`, and `jaxrl` is a command.")
    return 0


def installed(venv: str, lock: str) -> tuple[set[str], bool]:
    """The extras of an environment, and if it was made from today's requirements."""
    record = Path(venv, RECORD)
    if not record.exists():
        return set(), False
    digest, _, extras = record.read_text().partition("\n")
    return {name for name in extras.strip().split(",") if name}, digest == _digest(lock)


def _digest(lock: str) -> str:
    """Contents and not times: a checkout of another branch and back changes nothing."""
    return hashlib.sha256(b"".join(Path(name).read_bytes() for name in ("pyproject.toml", lock))).hexdigest()


def _pip(command: list[str]) -> int:
    """Runs pip with one line for each package that it fetches, and its whole last words if it fails."""
    environment = os.environ | {"PIP_PROGRESS_BAR": "off", "PYTHONUNBUFFERED": "1"}
    lines: list[str] = []
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line)
            if said := _progress(line):
                print(f"      {said}", flush=True)
    if pip.returncode:
        print("".join(lines[-_TAIL:]), file=sys.stderr)
    return pip.returncode


def _progress(line: str) -> str:
    """A line of pip's for someone who waits; "" for most of them."""
    if found := re.match(r"\s+(Downloading|Using cached) ([\w.]+)-(\d[\w.+!]*)-\S+(?: (\(.*\)))?", line):
        how, name, version, size = found.groups()
        return f"{'downloading' if how == 'Downloading' else 'cached'} {name} {version} {size or ''}".rstrip()
    if line.startswith("Installing collected packages:"):
        return f"unpacking {line.count(',') + 1} packages"
    return ""


if __name__ == "__main__":
    if missing := lacks():
        sys.exit(f"error: {missing}; another Python can be named: make setup PYTHON=/path/to/python3")
    sys.exit(main(*sys.argv[1:]))
