"""Host environments on 1 and on 8 devices; see `measure_host.py`, which does the computing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.parallel.multi_device.test_devices import TOLERANCE


@pytest.mark.slow
def test_eight_devices_learn_what_one_learns(tmp_path: Path) -> None:
    # correctness 12 and 25: environments and actions follow from the global index.
    processes.succeed("-m", "tests.parallel.multi_device.measure_host", str(tmp_path), devices=8)
    for name in ("trajectory", "state"):
        with np.load(tmp_path / f"{name}_1.npz") as one, np.load(tmp_path / f"{name}_8.npz") as eight:
            assert one.files == eight.files
            for key in one.files:
                np.testing.assert_allclose(one[key], eight[key], err_msg=key, **TOLERANCE)
    with np.load(tmp_path / "trajectory_1.npz") as arrays:
        assert len({tuple(column) for column in arrays[".action"].T}) > 16
