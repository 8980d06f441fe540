"""PQN's targets and loss beside numpy (Gallici et al. 2024; Peng and Williams 1994), and its exploration."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.tiny import ENVS, LENGTH, first_losses, first_state, iteration_of, tiny_config

GAMMA, LAMBDA = 0.9, 0.6


@pytest.mark.slow
def test_targets_and_loss_are_those_of_the_paper() -> None:
    fields = {"learner__gamma": GAMMA, "learner__q_lambda": LAMBDA}
    iteration = iteration_of(tiny_config("pqn", normalize__rewards=False, **fields))
    agent = iteration.learning.algorithm.agent

    def q_values(state: Any, trajectory: Any) -> Any:
        carry = jax.tree.map(lambda x: x[0], trajectory.carry)
        inputs = (trajectory.obs, carry, trajectory.reset, trajectory.action_mask)
        return agent.apply(state.learner.policy, *inputs).q

    t, _, sums, rows, q = first_losses(iteration, q_values)
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


@pytest.mark.slow
def test_exploration_falls_over_its_part_of_the_run() -> None:
    fields = {"learner__exploration_start": 0.8, "learner__exploration_end": 0.2}
    config = tiny_config("pqn", learner__exploration_fraction=0.5, **fields)
    iteration = iteration_of(config)
    algorithm: Any = iteration.learning.algorithm
    learner = first_state(iteration).learner
    for share, epsilon in ((0.0, 0.8), (0.25, 0.5), (0.5, 0.2), (1.0, 0.2)):
        made = dataclasses.replace(learner, updates=jnp.int32(share * config.total_updates))
        assert float(algorithm.exploration(made)) == pytest.approx(epsilon)
