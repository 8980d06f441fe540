"""The programs of `docs/replay.md` for custom loops run, one after the other, as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    """The names that each program leaves."""
    section = re.search(r"\n## In a custom loop\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    assert section
    names: dict[str, Any] = {}
    found = []
    for program in re.findall(r"```python\n(.*?)```", section[1], re.DOTALL):
        exec(program, names)
        found.append(dict(names))
    return found


def test_buffers(results: list[dict[str, Any]]) -> None:
    for found in results[:2]:
        assert int(found["state"].count) == 32
        assert len(set(found["indices"].tolist())) == 8
        np.testing.assert_allclose(found["weights"], 1.0, rtol=1e-5)


def test_memory_of_training(results: list[dict[str, Any]]) -> None:
    found = results[2]
    # Rows with three steps after them: two of each environment, so four of each group.
    assert int(found["batch"].usable.sum()) == 16
    kept = np.asarray(found["batch"].usable)
    np.testing.assert_allclose(found["returns"][kept], 1 + 0.99 + 0.99**2, rtol=1e-6)
    np.testing.assert_allclose(found["discounts"][kept], 0.99**3, rtol=1e-6)
    leaf = np.asarray(found["state"].tree.leaf)
    np.testing.assert_allclose(leaf[leaf > 0].max(), (1 + 0.99 + 0.99**2 + 1e-5) ** 0.6, rtol=1e-5)
