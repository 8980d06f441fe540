"""What end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest


@pytest.fixture(scope="session")
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled programs: runs of one configuration compile once."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def cached_compilation(compilation_cache: Path) -> Iterator[None]:
    """Uses that folder in this process while a test runs."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(compilation_cache))
    yield
    jax.config.update("jax_compilation_cache_dir", before)
