"""What every test runs under, and what the slower ones share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.runs.storage.gcs_server import GcsServer

# Before jax is imported anywhere: results must not depend on the accelerator of the machine at hand.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile far more than they compute: without LLVM's optimisations they take half the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# A shell's background job ignores SIGINT, and so would the processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for compiled programs: runs of one configuration compile once."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def cached_compilation(compilation_cache: Path) -> Iterator[None]:
    """Uses that folder in this process while a test runs."""
    import jax

    settings = {
        "jax_compilation_cache_dir": str(compilation_cache),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """Google Cloud Storage on this machine; clients keep its address, so there is one per process."""
    from tests.runs.storage.gcs_server import GcsServer

    server = GcsServer()
    yield server
    server.close()


@pytest.fixture
def gcs(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    """That server with one empty bucket, `runs`; clients of this process and of those it starts find it."""
    from jaxrl.runs import storage

    for name, value in gcs_server.environment.items():
        monkeypatch.setenv(name, value)
    storage.prepare("gs://runs")
    gcs_server.buckets = {"runs": {}}
    gcs_server.requests.clear()
    yield gcs_server
    gcs_server.rule = lambda request: None
