"""Each probe environment is solved in seconds; which one fails names what is broken.

The answers are exact and come from the docstrings of `jaxrl.envs.native`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import algorithms
from jaxrl.algorithms.actor_critic import ActorCriticOutput
from jaxrl.config import resolve
from jaxrl.envs import registry

GAMMA = 0.8


class Solved:
    """A trained policy that answers questions about single observations and whole episodes."""

    def __init__(self, name: str, steps: int, **overrides: Any) -> None:
        config = jaxrl.default_config()
        config.env.update(name=f"jaxrl:{name}", num_envs=16)
        config.network.update(core="none", hidden_sizes=(16,), core_size=16)
        config.ppo.update(rollout_length=8, num_epochs=2, num_minibatches=2, learning_rate=1e-2)
        config.ppo.update(gamma=GAMMA, entropy_coef=0.0, schedule="linear")
        config.stop.steps = steps
        config.log.layers = False
        config.update_from_flattened_dict(overrides)
        resolved = resolve(config, 1)
        self.agent = algorithms.build_agent(resolved, registry.make(resolved.env.name).spec)
        state, metrics = jax.jit(jaxrl.make_train(resolved))(jax.random.key(0))
        self.acting = state.learner.policy
        self.metrics = {name: np.asarray(value) for name, value in metrics.items()}

    def at(self, obs: Any, mask: Any = None) -> ActorCriticOutput:
        """The policy at a batch of first observations [N, *O]."""
        n = jax.tree.leaves(obs)[0].shape[0]
        carry = self.agent.initial_carry(n)
        return self.agent.forward(self.acting, obs, carry, jnp.ones(n, bool), mask)

    def value(self, obs: Any) -> np.ndarray:
        return np.asarray(self.at(jnp.asarray(obs, jnp.float32)).value)

    def action(self, obs: Any) -> np.ndarray:
        """The action that the environment gets in a greedy evaluation."""
        if not isinstance(obs, dict):
            obs = jnp.asarray(obs, jnp.float32)
        return np.asarray(self.agent.to_env(self.agent.greedy(self.at(obs))))

    def sampled_return(self, iterations: int) -> float:
        """Mean return of the episodes that ended in the last iterations of training."""
        counts = self.metrics["episode/count"][-iterations:]
        total = np.nansum(self.metrics["episode/return"][-iterations:] * counts)
        return float(total / counts.sum())


# A policy that follows it has such a value, below.
@pytest.mark.long
def test_value_follows_the_observation() -> None:
    np.testing.assert_allclose(
        Solved("ProbeObservation", 8_000).value([[-1.0], [1.0]]), [-1.0, 1.0], atol=0.05
    )


# The values below are sums of discounted rewards.
@pytest.mark.long
def test_value_is_discounted() -> None:
    np.testing.assert_allclose(Solved("ProbeDiscount", 16_000).value([[0.0], [1.0]]), [GAMMA, 1.0], atol=0.05)


@pytest.mark.slow
def test_truncation_bootstraps() -> None:
    # correctness 7 and 8: taken for a termination, it would stay below (1 - gamma^5) / (1 - gamma) = 3.4.
    solved = Solved("ProbeTruncation(steps=5)", 30_000)
    np.testing.assert_allclose(solved.value([[1.0]]), [1 / (1 - GAMMA)], rtol=0.05)


@pytest.mark.slow
def test_termination_does_not_bootstrap() -> None:
    # correctness 7: a bootstrap through the termination would raise all of them towards 1 / (1 - gamma) = 5.
    steps = 5
    expected = (1 - GAMMA ** (steps - np.arange(steps))) / (1 - GAMMA)
    solved = Solved(f"ProbeTermination({steps=})", 30_000)
    np.testing.assert_allclose(solved.value(np.eye(steps)), expected, atol=0.15)


@pytest.mark.slow
def test_action_follows_the_observation() -> None:
    # With a core, so that its reset at every episode is in the way too (correctness 5).
    solved = Solved("ProbePolicy", 16_000, **{"network.core": "gru"})
    np.testing.assert_array_equal(solved.action([[-1.0], [1.0]]), [0, 1])
    assert solved.sampled_return(5) > 0.9


# A gaussian that is not squashed has far bounds, below.
@pytest.mark.slow
@pytest.mark.parametrize(
    "squash", [pytest.param(False, marks=pytest.mark.long), True], ids=["gaussian", "tanh_gaussian"]
)
def test_mean_of_a_continuous_action(squash: bool) -> None:
    solved = Solved("ProbeContinuous", 60_000, **{"network.head": "tanh_gaussian" if squash else "gaussian"})
    np.testing.assert_allclose(solved.action([[-1.0], [1.0]]), [[-0.5], [0.5]], atol=0.1)
    # And its scale: with a standard deviation left at 1 the clipped action alone loses 0.4.
    assert solved.sampled_return(10) > -0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high", "middle", "reach", "head"),
    [
        (0, 1000, 500, 500, "auto"),
        pytest.param(0, 1000, 500, 500, "gaussian_mixture", marks=pytest.mark.long),
    ],
)
def test_bounds_that_no_unit_gaussian_suits(
    low: float, high: float | None, middle: float, reach: float, head: str
) -> None:
    name = f"tests.e2e.environments:FarActions(low={low}, high={high}, middle={middle}, reach={reach})"
    solved = Solved("", 60_000, **{"env.name": name, "network.head": head, "network.mixture_components": 1})
    best = middle + reach * np.array([[-0.5], [0.5]])
    np.testing.assert_allclose(solved.action([[-1.0], [1.0]]), best, atol=0.1 * reach)
    assert solved.sampled_return(10) > -0.05


@pytest.mark.slow
def test_components_of_a_multi_discrete_action() -> None:
    solved = Solved("ProbeMultiDiscrete", 30_000)
    np.testing.assert_array_equal(solved.action(np.eye(3)), [[0, 1], [1, 2], [0, 0]])


@pytest.mark.slow
def test_forbidden_action_is_never_taken() -> None:
    # correctness 16. One forbidden action would cost 100 and end its episode, in any iteration.
    steps = 4
    metrics = Solved(f"ProbeMask({steps=})", 4_000).metrics
    assert metrics["episode/count"].sum() > 500
    ended = metrics["episode/count"] > 0
    np.testing.assert_array_equal(metrics["episode/return"][ended], steps)
    assert all(np.isfinite(value).all() for value in metrics.values())


MEMORY = {
    "env.num_envs": 64,
    "ppo.rollout_length": 4,
    "ppo.num_epochs": 4,
    "ppo.learning_rate": 3e-3,
    "ppo.gamma": 0.95,
}


@pytest.mark.slow
def test_cue_is_remembered_for_longer_than_a_rollout() -> None:
    # correctness 23: no rollout holds both the cue and its answer, so the carry must live across rollouts.
    solved = Solved("ProbeMemory(delay=5)", 50_000, **MEMORY, **{"network.core": "lstm"})
    assert solved.sampled_return(6) > 0.95


# It shows that the environment does not tell its cue, which changes with `jaxrl.envs.native` alone.
@pytest.mark.long
def test_cue_is_not_remembered_without_a_core() -> None:
    # Otherwise the environment leaks its cue and the test above shows nothing.
    solved = Solved("ProbeMemory(delay=5)", 50_000, **MEMORY)
    assert abs(solved.sampled_return(60)) < 0.2
