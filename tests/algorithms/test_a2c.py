"""A2C's losses and their gradient's weights, beside numpy (Mnih et al. 2016, section 4 and equation 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.algorithms.tiny import (
    ENVS,
    LENGTH,
    STEPS,
    first_losses,
    iteration_of,
    tiny_config,
)

GAMMA, LAMBDA, ENTROPY, VALUE = 0.9, 0.8, 0.3, 0.7


@pytest.fixture(scope="module", params=[False, True])
def found(request: pytest.FixtureRequest) -> Any:
    """(are advantages normalised, trajectory, total loss, its parts, rows of the batch) of a rollout."""
    fields = {"learner__gamma": GAMMA, "learner__gae_lambda": LAMBDA, "learner__value_coef": VALUE}
    fields |= {"learner__entropy_coef": ENTROPY, "learner__normalize_advantages": request.param}
    iteration = iteration_of(tiny_config("a2c", normalize__rewards=False, **fields))
    return request.param, *first_losses(iteration)[:4]


def by_hand(t: Any) -> tuple[np.ndarray, np.ndarray]:
    """(advantage, target): sums of discounted errors up to the end of each episode, or of the rollout."""
    value = np.float64(t.extras["value"])
    following = np.concatenate([value[1:], np.float64(t.last)[None]])
    after = np.where(t.terminated, 0, np.where(t.truncated, t.bootstrap, following))
    error = t.reward + GAMMA * after - value
    ends = t.terminated | t.truncated
    advantage = np.zeros_like(error)
    for b in range(ENVS):
        for start in range(LENGTH):
            for k, row in enumerate(range(start, LENGTH)):
                advantage[start, b] += (GAMMA * LAMBDA) ** k * error[row, b]
                if ends[row, b]:
                    break
    return advantage, advantage + value


@pytest.mark.slow
def test_losses_are_those_of_the_paper(found: Any) -> None:
    is_normalised, trajectory, total, sums, rows = found
    assert (trajectory.terminated | trajectory.truncated).any()
    advantage, target = by_hand(trajectory)
    value = np.float64(trajectory.extras["value"])
    if is_normalised:
        advantage = (advantage - advantage.mean()) / advantage.std()
    np.testing.assert_allclose(rows["advantage"], advantage, atol=1e-4)
    policy = -(np.float64(trajectory.extras["log_prob"]) * advantage).sum()
    error = 0.5 * np.square(target - value).sum()
    np.testing.assert_allclose(sums["loss/policy"], policy, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(sums["loss/value"], error, rtol=1e-4)
    # The entropy is a bonus: of a policy that is nearly uniform over two of three actions.
    assert sums["loss/entropy"] / STEPS == pytest.approx(np.log(2), abs=0.05)
    np.testing.assert_allclose(total, policy + VALUE * error - ENTROPY * sums["loss/entropy"], rtol=1e-4)
