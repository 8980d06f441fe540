"""Programs that several of these tests compile, they compile once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.parallel.multi_process.pods import pod, state
from tests.parallel.multi_process.tiny import STEPS

ITERATIONS = 6


@pytest.fixture(scope="session")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    """States by step, of a run of one process with four devices."""
    folder = tmp_path_factory.mktemp("one") / "run"
    stop = f"--config.stop.steps={ITERATIONS * STEPS}"
    with pod(folder, "1", "--devices=4", stop) as alone:
        assert alone.ended() == 0, alone.output
        assert "4 x cpu" in alone.output
    return {n * STEPS: state(folder, n * STEPS) for n in range(2, ITERATIONS + 1, 2)}
