"""What the fault tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import Run


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory, compilation_cache: Path) -> Run:
    """The run that nothing happened to."""
    run = Run(tmp_path_factory.mktemp("straight") / "run", compilation_cache)
    outcome = run.train()
    assert (outcome.code, outcome.stderr) == (0, "")
    return run


@pytest.fixture
def run(tmp_path: Path, compilation_cache: Path) -> Run:
    """One that something will happen to."""
    return Run(tmp_path / "run", compilation_cache)
