"""The weight of PPO's entropy bonus over a run."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.metrics.reduction import row
from tests.algorithms.tiny import assert_close, first_state, iteration_of, loud, tiny_config, with_policy

# Ten updates in all, one an iteration.
ONE_UPDATE = {
    "learner__num_epochs": 1,
    "learner__num_minibatches": 1,
    "learner__schedule": "constant",
    "learner__learning_rate": 1e-2,
    "learner__entropy_coef": 0.5,
}


@pytest.mark.slow
def test_the_weight_falls_to_nothing() -> None:
    falling, iterate = _falling()
    state, weights = _start(falling), []
    for _ in range(10):
        state, metrics = iterate(state)
        weights.append(row(metrics)["ppo/entropy_coef"])
    np.testing.assert_allclose(weights, 0.5 * (1 - np.arange(10) / 10), atol=1e-6)


@pytest.mark.slow
def test_the_bonus_has_that_weight() -> None:
    falling, iterate = _falling()
    state = _start(falling)
    over = dataclasses.replace(state.learner, updates=jnp.int32(10))
    whole, none = iterate(state)[0], iterate(dataclasses.replace(state, learner=over))[0]
    assert_close(_params(whole), _params(_with_constant(0.5)))
    assert_close(_params(none), _params(_with_constant(0.0)))
    moved = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), _params(whole), _params(none))
    assert max(jax.tree.leaves(moved)) > 1e-3


@pytest.mark.slow
def test_the_weight_follows_the_clock_of_a_budget_in_seconds() -> None:
    """The learning rate falls with the seconds too: both reach their ends with the run."""
    falling, _ = _falling()
    algorithm, learner = falling.learning.algorithm, _start(falling).learner
    for elapsed, expected in ((0.0, 0.5), (0.25, 0.375), (1.0, 0.0)):
        # Far more updates than were planned would be the end by any other clock.
        spent = dataclasses.replace(learner, updates=jnp.int32(1_000), elapsed=jnp.float32(elapsed))
        assert float(algorithm.entropy_coef(spent)) == pytest.approx(expected)


@functools.cache
def _falling() -> tuple[Any, Any]:
    """(program, its compiled iteration)."""
    falling = iteration_of(tiny_config("ppo", **ONE_UPDATE, learner__entropy_schedule="linear"))
    return falling, jax.jit(falling.iterate)


def _with_constant(entropy_coef: float) -> Any:
    """The state after one iteration without a schedule."""
    constant = iteration_of(tiny_config("ppo", **ONE_UPDATE | {"learner__entropy_coef": entropy_coef}))
    return jax.jit(constant.iterate)(_start(constant))[0]


def _start(iteration: Any) -> Any:
    """With a policy that is not uniform: the entropy of a uniform one has no gradient."""
    state = first_state(iteration)
    return with_policy(state, params=loud(_params(state)))


def _params(state: Any) -> Any:
    return state.learner.policy.params
