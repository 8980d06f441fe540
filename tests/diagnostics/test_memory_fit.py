"""Memory: the verdict on this machine's devices, and the search for the largest batch that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from jaxrl.config import Config, default_config
from jaxrl.diagnostics import memory_fit
from jaxrl.diagnostics.memory_fit import MemoryReport
from jaxrl.parallel.sharding import Topology
from tests.compiled_programs import tiny_config

PER_ENVIRONMENT, FIXED = 1000, 50_000


def report(config: Config, limit: int, needed: int, enforced: bool = False) -> MemoryReport:
    memory = memory_fit.ProgramMemory(needed, needed, 0, 0, 0)
    complaint = "" if needed <= limit else "RESOURCE_EXHAUSTED"
    return MemoryReport(
        config=config,
        limit=limit,
        enforced=enforced,
        needed=needed,
        memory=memory,
        evaluation=None,
        work=None,
        launches=None,
        flops=0.0,
        seconds=(0.0, 0.0),
        largest=(),
        complaint=complaint,
    )


def compiler(config: Config, limit: int, tried: list[int]) -> Callable[[int], MemoryReport]:
    """A program whose memory is a straight line, up to a step where the compiler needs a copy more."""

    def try_one(count: int) -> MemoryReport:
        tried.append(count)
        needed = FIXED + PER_ENVIRONMENT * count + (200_000 if count > 3000 else 0)
        return report(memory_fit.with_environments(config, count), limit, needed)

    return try_one


@pytest.mark.parametrize("limit", [100_000, 1_000_000, 3_100_000, 3_500_000, 10_000_000])
def test_search_ends_near_the_limit(limit: int) -> None:
    config, tried = tiny_config(env__num_envs=8), []
    try_one = compiler(config, limit, tried)
    best, fails = memory_fit.find_batch(try_one(8), 4, try_one)
    assert best is not None
    assert fails is not None
    count = best.config.env.num_envs
    assert best.fits
    assert count % 4 == 0
    assert count < fails
    # The number that fails is near, and it does.
    assert fails - count <= max(4, memory_fit.RESOLUTION * count)
    assert not try_one(fails).fits
    assert len(tried) < 15


def test_search_where_nothing_fits() -> None:
    config, tried = tiny_config(env__num_envs=64), []
    try_one = compiler(config, 10_000, tried)
    assert memory_fit.find_batch(try_one(64), 4, try_one) == (None, 4)


def test_search_downward_from_a_number_that_is_too_large() -> None:
    config, tried = tiny_config(env__num_envs=4096), []
    try_one = compiler(config, 500_000, tried)
    best, fails = memory_fit.find_batch(try_one(4096), 64, try_one)
    assert best is not None
    assert (best.config.env.num_envs, fails) == (448, 512)  # 50,000 + 448 x 1000 <= 500,000 < 562,000


def test_search_stops_somewhere() -> None:
    config, tried = tiny_config(env__num_envs=8), []
    try_one = compiler(config, 10**15, tried)
    best, fails = memory_fit.find_batch(try_one(8), 4, try_one)
    assert best is not None
    assert (best.config.env.num_envs, fails) == (memory_fit.MAX_ENVIRONMENTS_PER_DEVICE, None)


def test_environments_are_raised_to_what_divides() -> None:
    config = default_config()
    config.env.num_envs = 104
    config.ppo.num_minibatches = 8
    resolved, unit = memory_fit.share_evenly(config, 4)
    assert (resolved.env.num_envs, unit) == (128, 32)
    assert config.env.num_envs == 104


@pytest.mark.slow
def test_a_program_on_this_machine() -> None:
    config, topology = tiny_config(), Topology.of(1)
    plenty = memory_fit.examine(config, topology, 2**40, enforced=False)
    assert plenty.fits
    assert plenty.memory is not None
    assert plenty.evaluation is not None
    # The state alone, of 8 environments, is some kilobytes; the trajectory is of 128 steps.
    assert 1000 < plenty.memory.arguments < plenty.memory.peak < 10**7
    assert plenty.flops > 0
    little = dataclasses.replace(plenty, limit=1000)
    assert not little.fits
    assert little.largest


@pytest.mark.parametrize(
    ("complaint", "needed"),
    [
        # As XLA for TPUs words it: binary units.
        ("Ran out of memory in memory space hbm. Used 20.50G of 15.48G hbm.", 20.5 * 2**30),
        ("memory space smem: Used 1.5M of 1.00M smem. Exceeded smem capacity by 512.0K.", 1.5 * 2**20),
        ("something else", None),
    ],
)
def test_the_memory_that_a_compiler_asked_for(complaint: str, needed: float | None) -> None:
    assert memory_fit._parse_needed(f"RESOURCE_EXHAUSTED: {complaint}") == needed
