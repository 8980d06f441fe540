"""benchmarks/large_memory.py: a memory is neither copied in training nor by a checkpoint or a resume."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "large_memory.py"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="limits as on Linux")]


def measure(gigabytes: float, limit: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), f"--gigabytes={gigabytes}", f"--limit={limit}"]
    # As users compile: with the flags of tests, programs of jaxlib 0.11.2 fill a memory many times slower.
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


def resident(gigabytes: float) -> list[float]:
    """GB that the process that fills and the one that restores held at most."""
    done = measure(gigabytes, 4.0)
    assert done.returncode == 0, done.stderr
    return [float(x) for x in re.findall(r"at most ([\d.]+) GB resident", done.stdout)]


@pytest.mark.long
def test_a_memory_is_held_once() -> None:
    # 0.75 GB once, and up to 0.4 that TensorStore has in flight while it saves; held twice, it would be 1.5.
    for small, large in zip(resident(0.05), resident(0.8), strict=True):
        assert 0.6 < large - small < 1.4


# tests/algorithms/test_large_memories.py has the memory of programs.
@pytest.mark.long
def test_the_limit_holds() -> None:
    done = measure(1.5, 1.5)
    assert done.returncode == 1
    assert "training did not end well within 1.5 GB" in done.stderr
