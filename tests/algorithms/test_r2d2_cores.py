"""R2D2 with cores: a sequence that is replayed from its stored carry is what acting saw."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.tiny import ENVS, LENGTH, iteration_of, tiny_config

INTERVAL, WINDOW = 4, 1 + 8 + 2  # burn-in, steps that are learnt from, steps of a return


# One that goes step by step and one that scans in parallel; `check_core` has all of them.
@pytest.mark.slow
@pytest.mark.parametrize("core", ["lstm", pytest.param("s5", marks=pytest.mark.long)])
def test_replayed_values_are_those_of_acting(core: str) -> None:
    # Shorter than a sequence: what a core forgets must be forgotten at the same step.
    config = tiny_config("r2d2", network__core=core, network__memory_length=6)
    iteration = iteration_of(config)
    learning = iteration.learning

    @jax.jit
    def replayed(key: jax.Array) -> Any:
        state = iteration.init(key, learning.algorithm.hyperparameters(config))
        memory, found = state.memory, []
        for i in range(2):
            rolled = state.replace(iteration=jnp.int32(i))
            rolled, trajectory, _ = iteration.rollout(rolled)
            state = state.replace(collector=rolled.collector)
            memory = learning.memory.add(memory, trajectory)
            found.append(trajectory)
        batch = learning.memory.draw(memory, found[-1], key)
        again = learning.algorithm.agent.apply(
            state.learner.policy, batch.obs, batch.carry, batch.reset, batch.action_mask
        )
        acted = jax.tree.map(lambda *x: jnp.concatenate(x), *found)
        return again.value, acted.extras["value"], acted.reset, batch

    again, acted, reset, batch = jax.device_get(replayed(jax.random.key(0)))
    places = {(int(row), int(env)) for row, env in zip(batch.row, batch.env, strict=True)}
    assert len(places) == (2 * LENGTH - WINDOW) // INTERVAL * ENVS + ENVS
    assert reset[1:].any()
    for n, (row, env) in enumerate(zip(batch.row, batch.env, strict=True)):
        steps = slice(row * INTERVAL, row * INTERVAL + WINDOW)
        np.testing.assert_allclose(again[:, n], acted[steps, env], rtol=1e-4, atol=1e-5)
    assert np.ptp(acted) > 1e-3
