"""A memory of 1 GB adds no copy to the compiled program, on a CPU and on an H200 that is not there.

Only shapes are compiled; nothing of that size is made. `JAX_PLATFORMS=cpu python -m
tests.algorithms.test_large_memories` prints the figures.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from jaxrl.parallel import gpus
from jaxrl.parallel.sharding import Topology
from jaxrl.population.programs import Programs
from jaxrl.programs.device_runtime import DeviceRuntime
from tests.algorithms.tiny import ENVS, tiny_config

pytestmark = pytest.mark.slow

MEBIBYTE = 2**20
NUMBERS = 64  # of an observation
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
def analysis(platform: str, members: int, megabytes: int) -> Any:
    """Sizes of the program that trains so many members, each with a memory of so many MiB."""
    config = tiny_config(
        "uniform_dqn",
        env__name=f"tests.algorithms.environments:Chance(size={NUMBERS})",
        learner__capacity=megabytes * MEBIBYTE // (4 * NUMBERS * ENVS),
        learner__drawn=2,
    )
    topology = topology_of(platform)
    if members == 1:
        program = DeviceRuntime(config, topology).trace()
    else:
        program = Programs(config, members, topology).training.trace()
    return program.lower().compile().memory_analysis()


def copies(platform: str, members: int) -> dict[str, float]:
    """MiB of the program beside its memories of 1 GiB: temporary, and results that lie elsewhere."""
    found = analysis(platform, members, 1024)
    return {
        "held": found.alias_size_in_bytes / MEBIBYTE,
        "temporary": found.temp_size_in_bytes / MEBIBYTE,
        "moved": (found.output_size_in_bytes - found.alias_size_in_bytes) / MEBIBYTE,
    }


@pytest.mark.parametrize("platform", PLATFORMS)
def test_one_run_copies_nothing(platform: str) -> None:
    found = copies(platform, 1)
    assert found["held"] > 1024
    assert found["temporary"] < 2
    assert found["moved"] < 1


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_population_of_two_copies_nothing(platform: str) -> None:
    """On a GPU its program holds both members; on a CPU one, since they take turns in arrays of their own."""
    found = copies(platform, 2)
    assert found["held"] > (1 if platform == "cpu" else 2) * 1024
    assert found["temporary"] < 2
    assert found["moved"] < 1


if __name__ == "__main__":
    for name in ("cpu", *(("h200",) if gpus.is_installed() else ())):
        for count in (1, 2):
            sizes = ", ".join(f"{what} {size:,.2f} MiB" for what, size in copies(name, count).items())
            print(f"{name}, {count} x 1 GiB: {sizes}", flush=True)
