"""Fixtures of the fault tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import FINDINGS, Run


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that nothing happened to."""
    run = Run(tmp_path_factory.mktemp("straight") / "run")
    outcome = run.train()
    assert (outcome.code, outcome.stderr) == (0, "")
    return run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """One that something will happen to."""
    run = Run(tmp_path / "run")
    yield run
    run.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(FINDINGS, {})
    if found:
        terminalreporter.write_sep("=", "faults")
        terminalreporter.write_line(f"{'':10} {'tried':>6} {'survived':>9} {'lost':>5}")
    for name, row in found.items():
        counts = f"{row['tried']:>6} {row['survived']:>9} {row['lost']:>5}"
        rest = {k: v for k, v in row.items() if k not in ("tried", "survived", "lost", "each")}
        terminalreporter.write_line(f"{name:10} {counts}  {rest}")
