"""Host environments on 1 and on 8 devices; see `measure_host.py`, which does the computing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parallel.multi_device.test_devices import TOLERANCE

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_eight_devices_learn_what_one_learns(tmp_path: Path) -> None:
    # correctness 12 and 25: environments and actions follow from the global index.
    env = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "8",
        "PYTHONPATH": str(ROOT),
    }
    script = str(Path(__file__).with_name("measure_host.py"))
    done = subprocess.run(
        [sys.executable, script, str(tmp_path)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for name in ("trajectory", "state"):
        with np.load(tmp_path / f"{name}_1.npz") as one, np.load(tmp_path / f"{name}_8.npz") as eight:
            assert one.files == eight.files
            for key in one.files:
                np.testing.assert_allclose(one[key], eight[key], err_msg=key, **TOLERANCE)
    with np.load(tmp_path / "trajectory_1.npz") as arrays:
        assert len({tuple(column) for column in arrays[".action"].T}) > 16
