"""A memory of 1 GiB adds no copy of its rows to the program, on a CPU and on an H200 that is not there.

Only shapes are compiled; nothing of that size is made. `JAX_PLATFORMS=cpu python -m
tests.algorithms.test_large_memories` prints the figures.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

import pytest

from jaxrl.parallel import gpus
from jaxrl.parallel.compilation import without_cache
from jaxrl.parallel.sharding import Topology
from jaxrl.population.programs import Programs
from jaxrl.programs.device_runtime import DeviceRuntime
from tests.algorithms.tiny import tiny_config

pytestmark = pytest.mark.slow

MEBIBYTE = 2**20
NUMBERS = 64  # of an observation
STEPS = 1024 * MEBIBYTE // (4 * NUMBERS)  # whose observations are 1 GiB
# Bytes for each step of the memory, beside 2 MiB. By priority a leaf is 4, and sums and maxima of 16 are 0.5:
# those from before an iteration are kept, in case it is not finite. On a CPU a draw adds up the sums; on a
# GPU all leaves race, 4, and are copied before their update, 4; a population has 1 more.
TEMPORARY = {(False, "cpu"): 0, (False, "h200"): 0, (True, "cpu"): 5, (True, "h200"): 14}
PLATFORMS = (
    "cpu",
    pytest.param(
        "h200",
        marks=pytest.mark.skipif(
            not gpus.is_installed(),
            reason="jax-cuda12-plugin, which compiles for NVIDIA GPUs, is not installed: docs/gpu.md",
        ),
    ),
)


def topology_of(platform: str) -> Topology:
    return Topology.of(1) if platform == "cpu" else Topology.on(gpus.Gpus(platform, 1).devices()[:1])


@functools.cache
def analysis(platform: str, members: int, prioritised: bool) -> Any:
    """Sizes of the program that trains so many members of DQN, each with a memory of so many steps."""
    config = tiny_config(
        "dqn",
        env__name=f"tests.algorithms.environments:Chance(size={NUMBERS})",
        learner__capacity=STEPS,
        learner__batch_size=32,
        learner__prioritised=prioritised,
    )
    topology = topology_of(platform)
    if members == 1:
        program = DeviceRuntime(config, topology).trace()
    else:
        program = Programs(config, members, topology).training.trace()
    with contextlib.nullcontext() if platform == "cpu" else without_cache():  # it could not be read again
        return program.lower().compile().memory_analysis()


def copies(platform: str, members: int, prioritised: bool) -> dict[str, float]:
    """MiB of the program beside its memories of 1 GiB: temporary, and results that lie elsewhere."""
    found = analysis(platform, members, prioritised)
    return {
        "held": found.alias_size_in_bytes / MEBIBYTE,
        "temporary": found.temp_size_in_bytes / MEBIBYTE,
        "moved": (found.output_size_in_bytes - found.alias_size_in_bytes) / MEBIBYTE,
    }


def allowed(platform: str, members: int, prioritised: bool) -> float:
    """MiB that may be temporary."""
    return 2 + members * TEMPORARY[prioritised, platform] * STEPS / MEBIBYTE


@pytest.mark.parametrize("prioritised", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_one_run_copies_no_rows(platform: str, prioritised: bool) -> None:
    found = copies(platform, 1, prioritised)
    assert found["held"] > 1024
    assert found["temporary"] < allowed(platform, 1, prioritised)
    assert found["moved"] < 1


@pytest.mark.parametrize("prioritised", [pytest.param(False, marks=pytest.mark.long), True])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_population_of_two_copies_no_rows(platform: str, prioritised: bool) -> None:
    """On a GPU its program holds both members; on a CPU one, since they take turns in arrays of their own."""
    found, members = copies(platform, 2, prioritised), 1 if platform == "cpu" else 2
    assert found["held"] > members * 1024
    assert found["temporary"] < allowed(platform, members, prioritised)
    assert found["moved"] < 1


if __name__ == "__main__":
    for name in ("cpu", *(("h200",) if gpus.is_installed() else ())):
        for kind, count in itertools.product((False, True), (1, 2)):
            sizes = ", ".join(f"{what} {size:,.2f} MiB" for what, size in copies(name, count, kind).items())
            print(f"{name}, {count} x 1 GiB, {'prioritised' if kind else 'uniform'}: {sizes}", flush=True)
