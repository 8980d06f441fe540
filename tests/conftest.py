"""The settings under which every test runs, and fixtures that the slower ones share."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests import compilation_settings

if TYPE_CHECKING:
    from tests.runs.storage.gcs_server import GcsServer

# Before jax is imported anywhere: results must not depend on the accelerator of the machine at hand.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
compilation_settings.apply()
# Programs need not say which line of which file each of their operations comes from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# Tracing makes many objects and few cycles: with fewer searches for those, a fifth less time.
gc.set_threshold(200_000, 20, 100)
# A shell's background job ignores SIGINT, and one under nohup SIGHUP, and so would the processes that tests
# start and interrupt.
for signum, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(signum) is signal.SIG_IGN:
        signal.signal(signum, handler)


@pytest.fixture(scope="session")
def most_memory() -> int:
    """Bytes of a worker, before it lets go of the programs of earlier modules."""
    import psutil

    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # Two thirds of what is free: the processes that tests start need some, too.
    return max(2 << 30, psutil.virtual_memory().available * 2 // (3 * workers))


@pytest.fixture(scope="session", autouse=True)
def same_classes() -> None:
    """Branches of what jaxrl traces are compared by their classes."""
    from tests import branch_types

    branch_types.install()


@pytest.fixture(scope="session", autouse=True)
def compilation() -> None:
    """What a process has compiled it compiles no more, and small programs take less."""
    from tests import compilation_memory

    compilation_memory.keep_executables()


@pytest.fixture(scope="module", autouse=True)
def programs(most_memory: int) -> Iterator[None]:
    """Keeps hundreds of modules' compiled programs from filling the memory."""
    yield
    import psutil

    if psutil.Process().memory_info().rss < most_memory:
        return
    import jax

    from tests import compilation_memory

    compilation_memory.forget_executables()
    jax.clear_caches()
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc; compiling leaves small holes
        trim(0)


# Folders with the longest files come first, so that no worker is left with one at the end; xdist would sort
# files by their number of tests (`--no-loadscope-reorder` in pyproject.toml).
LONGEST_FIRST = (
    "tests/e2e/",
    "tests/pipeline/",
    "tests/training/",
    "tests/programs/",
    "tests/population/",
    "tests/parallel/",
    "tests/faults/",
    "tests/algorithms/",
    "tests/experience/",
    "tests/inference/",
    "tests/envs/",
    "tests/networks/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> tuple[int, tuple[str, ...]]:
        found = (i for i, folder in enumerate(LONGEST_FIRST) if item.nodeid.startswith(folder))
        # xdist needs one order, whichever way a worker has read the tree.
        return next(found, len(LONGEST_FIRST)), item.path.parts

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport]:
    """Every second worker reads the tree from its end, and each finds what another has made to bytecode."""
    report = yield
    is_odd = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579"
    if is_odd and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


# Folders whose tests refuse implicit promotion of dtypes and ranks, and exceptions with their reasons.
STRICT = (
    "tests/algorithms/",
    "tests/evaluation/",
    "tests/networks/",
    "tests/experience/",
    "tests/programs/",
    "tests/population/",
    "tests/training/",
)
IMPLICIT = {
    "tests/algorithms/test_optimizer.py": "optax, the oracle there, raises a float to an integer power"
}


@pytest.fixture(scope="module", autouse=True)
def promotion(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes `int32 + float32`, and `[T, B] + [B]`, errors while a module's tests run."""
    module = request.path.relative_to(request.config.rootpath).as_posix()
    if not module.startswith(STRICT) or module in IMPLICIT:
        yield
        return
    import jax

    # Not the context managers, which other threads would not see.
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    yield
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    jax.config.update("jax_numpy_rank_promotion", "allow")


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
