"""Resident memory of `make train`, and of the run when it is resumed: the most that each process had.

  python benchmarks/resident_memory.py
  python benchmarks/resident_memory.py --config=configs/ppo_mlp.py --steps=200000 --json=FILE

The first process trains for `--steps` with an empty compilation cache, so that its memory includes what XLA
needs to compile; the second resumes the run for as many steps, with the cache that the first has filled.
Prints the largest resident memory of each in MiB (`ru_maxrss`). Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("make train", "resumed")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="configs/ppo.py", help="the default is that of `make train`")
    parser.add_argument("--steps", type=int, default=100_000, help="of each process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the MiB by process")
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for count, name in enumerate(NAMES, start=1):
            found[name] = train(given.config, count * given.steps, Path(folder)) / 2**20
            print(f"{name}: {found[name]:,.0f} MiB", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found) + "\n")


def train(config: str, steps: int, folder: Path) -> int:
    """Bytes that were resident at most in a process that trains, or resumes, until so many steps."""
    command = [sys.executable, "-m", "jaxrl.main", f"--config={config}", f"--workdir={folder / 'run'}"]
    command += [f"--config.stop.steps={steps}", "--config.stop.return=None"]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).resolve().parents[1],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"training ended with exit code {process.returncode}")
    return usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
