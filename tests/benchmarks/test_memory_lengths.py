"""`benchmarks/memory_lengths.py`: its environment, runs that were cut off, and tables, by hand."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs import registry
from tests.benchmarks.loading import load


@pytest.fixture(scope="module")
def lengths() -> ModuleType:
    return load("memory_lengths")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return load("memory_lengths_page")


def line(
    series: str = "ppo", core: str = "lstm", delay: int = 4, seed: int = 0, **ended: Any
) -> dict[str, Any]:
    found = {"series": series, "core": core, "delay": delay, "seed": seed}
    return found | {"solved": True, "share": 0.97, "steps": 60_000, "seconds": 2.0} | ended


@pytest.fixture
def trained(lengths: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(delay, seed) of the cells that were trained; delays above 16 are never solved."""
    found: list[tuple[int, int]] = []

    def train(cell: Any, budget: Any) -> dict[str, Any]:
        found.append((cell.delay, cell.seed))
        return line(cell.series, cell.core, cell.delay, cell.seed, solved=cell.delay <= 16)

    monkeypatch.setattr(lengths, "train", train)
    return found


def test_a_run_that_was_cut_off_trains_what_is_missing(
    lengths: ModuleType, trained: list[tuple[int, int]], tmp_path: Path
) -> None:
    budget = lengths.Budget(1, 1.0, 1.0)
    lengths.run(tmp_path, itertools.islice(lengths.cells(["ppo"], ["lstm"], 1), 2), budget)
    with (tmp_path / "runs.jsonl").open("a") as lines:
        lines.write(json.dumps(line(delay=64))[:30])
    lengths.run(tmp_path, lengths.cells(["ppo"], ["lstm"], 2), budget)
    # After 64 has failed, 256 and 1,024 are not trained.
    assert trained == [(4, 0), (16, 0), (64, 0), (4, 1), (16, 1), (64, 1)]
    assert [(cell.delay, cell.seed) for cell in lengths.read(tmp_path)] == trained


def test_a_run_ends_after_both_budgets_or_at_the_limit(lengths: ModuleType) -> None:
    budget = lengths.Budget(steps=100, seconds=5.0, limit=9.0)
    assert not budget.is_used(100, 4.9)
    assert not budget.is_used(99, 8.9)
    assert budget.is_used(100, 5.0)
    assert budget.is_used(1, 9.0)


def test_the_share_is_of_the_latest_episodes(lengths: ModuleType) -> None:
    # (steps, seconds, right answers, episodes): the last two make 300 episodes, 270 of them right.
    curve = [(1, 1.0, 100.0, 200.0), (2, 2.0, 130.0, 150.0), (3, 3.0, 140.0, 150.0)]
    assert lengths.latest_share(curve, 256) == 0.9
    assert lengths.latest_share(curve[:1], 256) is None


def test_tables_name_the_longest_delay_of_all_seeds(page: ModuleType) -> None:
    runs = [
        line(delay=4, seed=0, seconds=1.0, steps=16_384),
        line(delay=4, seed=1, seconds=3.0, steps=32_768),
        line(delay=16, seed=0, seconds=5.0),
        line(delay=16, seed=1, seconds=7.0),
        line(delay=64, seed=0),
        line(delay=64, seed=1, solved=False, share=0.5),
        line(delay=256, seed=0, solved=False, share=0.4, steps=500_000),
        line(delay=256, seed=1, solved=False, share=None, steps=500_000),
        line(delay=1024, seed=0),
    ]
    found = page.tables(runs, {"ppo": [4, 16, 64, 256, 1024], "pqn": [4]}, steps=500_000, seconds=6.0)
    head, row = found.splitlines()[2], found.splitlines()[4]
    assert head == "| core | 500,000 steps | 6 s | steps/s | 4 | 16 | 64 | 256 | 1,024 |"
    # 1,349,152 steps in 26 seconds. A seed needs 7 seconds at a delay of 16; one was not trained at 1,024.
    cells = "2/2, 2.0 s, 25k | 2/2, 6.0 s, 60k | 1/2, 2.0 s, 60k | 0/2, 40%, 500k | 1/1, 2.0 s, 60k"
    assert row == f"| `lstm` | 16 | 4 | 52k | {cells} |"
    assert "pqn" not in found


def test_pictures_have_one_of_each_series(page: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = [line(delay=4), line(delay=16, solved=False, share=0.5), line("pqn", solved=False, share=None)]
    page.draw(runs, {"ppo": [4, 16, 64], "pqn": [4], "ppo_repeat": [4]}, tmp_path)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["memory_lengths_ppo.png", "memory_lengths_pqn.png"]


def played(reset: Callable[..., Any], step: Callable[..., Any]) -> list[tuple[list[float], float, bool]]:
    """Observations, rewards and ends of two episodes with action 1."""
    found = []
    for key in jax.random.split(jax.random.key(3), 2):
        state, obs = reset(key)
        done = False
        while not done:
            state, timestep = step(key, state, jnp.int32(1))
            done = bool(timestep.terminated)
            found.append((obs.tolist(), float(timestep.reward), done))
            obs = timestep.obs
    return found


@pytest.mark.slow
def test_the_chain_with_a_traced_delay_is_gymnaxs(lengths: ModuleType) -> None:
    env = registry.make("gymnax:MemoryChain-bsuite(memory_length=5)")
    theirs = played(jax.jit(env.reset), jax.jit(env.step))
    reset = jax.jit(lambda delay, *given: lengths.Chain(delay).reset(*given))
    step = jax.jit(lambda delay, *given: lengths.Chain(delay).step(*given))
    assert played(functools.partial(reset, 5), functools.partial(step, 5)) == theirs
    assert [done for *_, done in theirs] == [*[False] * 5, True] * 2


@pytest.mark.slow
def test_without_memory_half_of_the_answers_are_right(lengths: ModuleType) -> None:
    budget = lengths.Budget(steps=40_000, seconds=0.0, limit=60.0)
    made = lengths.program(lengths.Cell("ppo", "none", 4, 0), budget)
    left = made.start(jnp.int32(4), jax.random.key(0)).collector.env_state.first_episode_left
    assert {*left.tolist()} == {1, 2, 3, 4, 5}
    run = lengths.train(lengths.Cell("ppo", "none", 4, 0), budget)
    assert (run["solved"], run["steps"]) == (False, 49_152)
    # 128 environments, episodes of 5 steps; the first of each, which was cut off, is not counted.
    episodes = sum(each[-1] for each in run["curve"])
    assert 49_152 / 5 - 2 * 128 <= episodes <= 49_152 / 5
    assert abs(run["share"] - 0.5) < 4 * 0.5 / np.sqrt(3_000)
