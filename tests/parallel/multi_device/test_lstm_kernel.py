"""Training with the LSTM kernel on several devices; see `measure_kernel.py`, which trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


# The kernel equals the scan in tests/networks/kernels/test_lstm_kernel.py, devices in test_devices.py.
@pytest.mark.long
def test_training_with_the_kernel_is_training_with_the_scan() -> None:
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "4",
        "PYTHONPATH": str(ROOT),
    }
    script = str(Path(__file__).with_name("measure_kernel.py"))
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    of_platforms = json.loads(done.stdout)
    assert set(of_platforms) == {"tpu", "gpu"}
    for found in of_platforms.values():
        assert found["kernel"]
        assert found["moved"] > 1e-2
        assert found["parameters"] < 1e-5
        assert found["metrics"] < 1e-4
