"""The arithmetic of a step, by which `jaxrl benchmark` says how far the machine's limit is."""

from __future__ import annotations

import pytest

from jaxrl.config import resolve
from jaxrl.diagnostics import throughput
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from tests.experience.agents.shared_policy import config


@pytest.mark.parametrize("central", [False, True])
def test_each_agent_of_an_environment_is_a_row(central: bool) -> None:
    sizes = {"network.core": "none", "network.hidden_sizes": (64,), "network.central_value": central}
    resolved = resolve(config(**sizes, **{"ppo.num_epochs": 2}), 1)
    found = throughput.flops_per_step(DeviceRuntime(resolved, Topology.of(1)), resolved)
    # Four agents with 9 observations and 3 actions: one pass of the rollout, two epochs of three.
    encoders = 2 * 64 * (9 + (9 + 4 if central else 0))
    products = 4 * (1 + 2 * 3) * (encoders + 2 * 64 * (3 + 1))
    assert products < found < 1.3 * products
