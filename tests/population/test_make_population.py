"""Many members in one program, on several devices: each is the run of its key and hyperparameters alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests import processes

# Three members on two devices: one of them is trained twice there, and must not show.
SCRIPT = """
import json, jax, jaxrl
from tests.programs.test_make_train import tiny_config

config = tiny_config()
train = jaxrl.make_population(config)
keys = jax.random.split(jax.random.key(0), 3)
rates = jaxrl.hyperparameters(config, learning_rate=[1e-2, 1e-2, 0.0])
states, metrics = train(keys, rates)
plain, _ = train(keys)
alone = jax.jit(jaxrl.make_train(config))
single = [alone(keys[i], jax.tree.map(lambda x: x[i], rates)) for i in range(3)]

def leaves(state):
    return [x.tolist() for x in jax.tree.leaves(state.learner.policy.params)]

print("FOUND" + json.dumps({
    "devices": jax.device_count(),
    "members": leaves(states),
    "plain": leaves(plain),
    "single": [leaves(state) for state, _ in single],
    "losses": metrics["loss/value"].tolist(),
    "single_losses": [found["loss/value"].tolist() for _, found in single],
}))
"""


# Members on two devices: tests/population/test_run_population.py.
@pytest.mark.long
def test_members_are_single_runs_on_two_devices() -> None:
    # correctness 25 and 31; tests/programs/test_make_train.py has one device.
    done = processes.succeed("-c", SCRIPT, devices=2)
    found: dict[str, Any] = json.loads(done.stdout.partition("FOUND")[2])
    assert found["devices"] == 2
    for leaf, plain, *single in zip(found["members"], found["plain"], *found["single"], strict=True):
        np.testing.assert_allclose(leaf, single, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(plain[:2], leaf[:2], rtol=1e-4, atol=1e-6)
    kernels = found["members"][0], found["plain"][0]
    assert not np.allclose(kernels[0][2], kernels[1][2])  # a learning rate of zero
    np.testing.assert_allclose(found["losses"], found["single_losses"], rtol=1e-4, equal_nan=True)
    assert np.shape(found["losses"])[0] == 3
