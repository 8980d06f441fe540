"""Builds wheel and sdist into dist/, checks both, and tries the wheel away from any checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import smoke
from pythons import Python

DIST = Path("dist")


def main() -> None:
    if DIST.exists():
        shutil.rmtree(DIST)
    # The wheel is built from the sdist, so both are complete. setuptools would read a folder build/ again.
    shutil.rmtree("build", ignore_errors=True)
    _run([sys.executable, "-m", "build", "--outdir", str(DIST)], shown=False)
    built = sorted(map(str, DIST.iterdir()))
    _run([sys.executable, "-m", "twine", "check", "--strict", *built])
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory(prefix="jaxrl-dist-") as folder:
        if smoke.prove(wheel.resolve(), Python(tuple(sys.version_info[:3]), sys.executable), Path(folder)):
            sys.exit("error: the wheel does not do what it should; see above")
    print(f"{' and '.join(built)}: built, checked, installed and tried.")


def _run(command: list[str], shown: bool = True) -> None:
    print("+", " ".join(command), flush=True)
    began = time.monotonic()
    output = {} if shown else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, **output)
    if done.returncode:
        sys.stdout.buffer.write(done.stdout or b"")
        sys.exit(f"error: `{' '.join(command)}` ended with {done.returncode}")
    print(f"  {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
