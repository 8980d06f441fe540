"""PQN's targets and loss beside numpy (Gallici et al. 2024; Peng and Williams 1994), and its exploration."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.sequences import Sequences
from tests.algorithms.tiny import CHUNK, ENVS, LENGTH, first_state, iteration_of, tiny_config

GAMMA, LAMBDA = 0.9, 0.6


@pytest.mark.slow
def test_targets_and_loss_are_those_of_the_paper() -> None:
    fields = {"learner__gamma": GAMMA, "learner__q_lambda": LAMBDA}
    iteration = iteration_of(tiny_config("pqn", normalize__rewards=False, **fields))
    algorithm: Any = iteration.learning.algorithm
    every = np.broadcast_to(np.arange(ENVS), (LENGTH // CHUNK, ENVS))

    @jax.jit
    def losses(state: Any) -> Any:
        state, trajectory, _ = iteration.rollout(state)
        prepared = algorithm.prepare(state.learner, trajectory)
        batch = prepared.batch.take(Sequences(jnp.asarray(every)), CHUNK)
        params = state.learner.policy.params
        sums = algorithm.loss(prepared.learner, params, batch, None)[1]
        carry = jax.tree.map(lambda x: x[0], trajectory.carry)
        inputs = (trajectory.obs, carry, trajectory.reset, trajectory.action_mask)
        return trajectory, sums, prepared.batch.rows, algorithm.agent.apply(state.learner.policy, *inputs).q

    t, sums, rows, q = jax.device_get(losses(first_state(iteration)))
    ends = t.terminated | t.truncated
    assert ends.any()
    greedy = q.max(axis=-1)  # forbidden actions have none of it
    taken = np.take_along_axis(q, np.asarray(t.action)[..., None], axis=-1)[..., 0]
    assert (taken < greedy).any()  # at first all actions are random
    target = np.zeros((LENGTH, ENVS))
    for b in range(ENVS):
        for i in reversed(range(LENGTH)):
            following = t.last[b] if i == LENGTH - 1 else greedy[i + 1, b]
            after = following if i == LENGTH - 1 else LAMBDA * target[i + 1, b] + (1 - LAMBDA) * following
            if ends[i, b]:
                after = 0.0 if t.terminated[i, b] else t.bootstrap[i, b]
            target[i, b] = t.reward[i, b] + GAMMA * after
    np.testing.assert_allclose(rows["target"], target, atol=1e-4)
    np.testing.assert_allclose(sums["loss/value"], 0.5 * np.square(taken - target).sum(), rtol=1e-4)
    np.testing.assert_allclose(sums["pqn/q"], taken.sum(), rtol=1e-4, atol=1e-4)


def test_exploration_falls_over_its_part_of_the_run() -> None:
    fields = {"learner__exploration_start": 0.8, "learner__exploration_end": 0.2}
    config = tiny_config("pqn", learner__exploration_fraction=0.5, **fields)
    iteration = iteration_of(config)
    algorithm: Any = iteration.learning.algorithm
    learner = first_state(iteration).learner
    for share, epsilon in ((0.0, 0.8), (0.25, 0.5), (0.5, 0.2), (1.0, 0.2)):
        made = dataclasses.replace(learner, updates=jnp.int32(share * config.total_updates))
        assert float(algorithm.exploration(made)) == pytest.approx(epsilon)
