"""Fixtures of tests of wrong checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxrl.runs.checkpoint import Checkpointer
from tests.runs.checkpoint.checkpoints import save_run


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("original")
    save_run(run, 5, 10)
    return run


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    """A copy of a run with checkpoints of the steps 5 and 10."""
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture
def checkpointer(run: Path) -> Iterator[Checkpointer]:
    checkpointer = Checkpointer(str(run / "checkpoints"), keep=2)
    yield checkpointer
    checkpointer.close()
