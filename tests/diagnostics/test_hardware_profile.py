"""`hardware_profile=auto`: what it chooses fits in the memory it was given, and hardly more would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from jaxrl.config import Config, default_config, resolve
from jaxrl.diagnostics import hardware_profile, memory_fit
from jaxrl.diagnostics.hardware_profile import MIN_ITERATIONS, _search
from jaxrl.diagnostics.memory_fit import MemoryReport
from jaxrl.parallel.sharding import Topology
from jaxrl.runs.folder import RunFolder
from tests.compiled_programs import SMALL
from tests.diagnostics.test_memory_fit import report

ROOT = Path(__file__).parents[2]


def config_of(**fields: Any) -> ConfigDict:
    config = default_config()
    changes = SMALL | {"stop.steps": 10**7} | {name.replace("__", "."): x for name, x in fields.items()}
    for name, value in changes.items():
        section, _, field = name.rpartition(".")
        (config[section] if section else config)[field] = value
    return config


def needed(config: ConfigDict) -> int:
    """Bytes of training, on one device without a limit."""
    resolved, _ = memory_fit.share_evenly(config, 1)
    report = memory_fit.examine(resolved, Topology.of(1), 1 << 60, enforced=False, evaluation=False)
    assert report.needed is not None
    return report.needed


# The search itself: tests/diagnostics/test_memory_fit.py.
@pytest.mark.long
def test_as_many_environments_as_fit() -> None:
    # A fixed number of parts: by default it changes with the number of environments, and memory jumps.
    fields: dict[str, Any] = {"network__core_size": 64, "ppo__gradient_accumulation": 1}
    config, limit = config_of(**fields), needed(config_of(**fields, env__num_envs=640))
    chosen, reason = _search(config, Topology.of(1), limit)
    assert 640 * (1 - memory_fit.RESOLUTION) <= chosen.env.num_envs <= 640
    assert "the most that fit in {memory}" in reason


@pytest.mark.slow
def test_no_more_than_the_budget_has_use_for() -> None:
    config = config_of(stop__steps=16 * 40 * MIN_ITERATIONS)
    chosen, reason = _search(config, Topology.of(1), 1 << 60)
    assert chosen.env.num_envs == 40
    assert f"stop.steps would be fewer than {MIN_ITERATIONS} iterations" in reason


# What is given up, and when, is below; a search that compiles is above.
@pytest.mark.long
def test_minibatches_are_divided_before_environments_are_given_up() -> None:
    fields: dict[str, Any] = {"env__num_envs": 128, "ppo__num_minibatches": 1, "network__core_size": 64}
    whole, parts = (needed(config_of(**fields, ppo__gradient_accumulation=n)) for n in (1, 2))
    assert parts < whole
    config = config_of(**fields, ppo__gradient_accumulation=1)
    chosen, reason = _search(config, Topology.of(1), (parts + whole) // 2)
    assert (chosen.env.num_envs, chosen.ppo.gradient_accumulation) == (128, 2)
    assert reason == "without more accumulation they do not fit in {memory}"


def test_environments_are_given_up_where_parts_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(config: Config, topology: Topology, limit: int, **options: Any) -> MemoryReport:
        return report(config, limit, 1000 * config.env.num_envs)

    monkeypatch.setattr(hardware_profile, "MAX_PARTS", 1)
    monkeypatch.setattr(memory_fit, "examine", examine)
    chosen, reason = _search(config_of(env__num_envs=128), Topology.of(1), 100_000)
    assert 100 * (1 - memory_fit.RESOLUTION) <= chosen.env.num_envs <= 100
    assert reason == "128 do not fit in {memory}"


def test_a_resumed_run_keeps_its_choice(tmp_path: Path) -> None:
    config = config_of(hardware_profile="auto")
    earlier = config_of(hardware_profile="auto", env__num_envs=48, ppo__gradient_accumulation=2)
    RunFolder(str(tmp_path)).write_config(resolve(earlier, 1))
    said: list[str] = []
    chosen = hardware_profile.fit(config, str(tmp_path), said.append)
    assert (chosen.env.num_envs, chosen.num_devices, chosen.ppo.gradient_accumulation) == (48, 1, 2)
    (line,) = said
    assert line.startswith(f"hardware_profile=auto: as in {tmp_path}, 1 x cpu, 48 environments")
