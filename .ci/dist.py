"""Builds wheel and sdist into dist/, checks both, and trains with the wheel away from any checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STEPS = 5_000
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
    with tempfile.TemporaryDirectory() as folder:
        _try(wheel.resolve(), Path(folder))
    print(f"{' and '.join(built)}: built, checked, installed and trained with.")


def _try(wheel: Path, folder: Path) -> None:
    """Installs the wheel, with the newest versions that it admits, into an empty environment, and uses it."""
    environment = folder / "environment"
    if uv := shutil.which("uv"):
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
        _run([uv, "pip", "install", "--quiet", "--python", str(environment / "bin/python"), str(wheel)])
    else:
        _run([sys.executable, "-m", "venv", str(environment)])
        _run([str(environment / "bin/python"), "-m", "pip", "install", "--quiet", str(wheel)])
    # As a user has it: in a folder of theirs, with nothing of the checkout on the path.
    away = folder / "away"
    away.mkdir()
    jaxrl = str(environment / "bin/jaxrl")
    _run([jaxrl, "train", "ppo", f"--config.stop.steps={STEPS}", "--workdir=runs/first"], away)
    _run([jaxrl, "evaluate", "--workdir=runs/first", "--episodes=64"], away)
    _run([jaxrl, "export", "--workdir=runs/first", "--format=stablehlo"], away)


def _run(command: list[str], folder: Path | None = None, shown: bool = True) -> None:
    print("+", " ".join(command), flush=True)
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    output = {} if shown else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=folder, env=environment, **output)
    if done.returncode:
        sys.stdout.buffer.write(done.stdout or b"")
        sys.exit(f"error: `{' '.join(command)}` ended with {done.returncode}")
    print(f"  {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
