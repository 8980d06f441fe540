"""A policy of graphs plays other levels with their graphs, and its own parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.config import default_config, resolve
from jaxrl.envs import registry
from jaxrl.envs.base import zeros
from jaxrl.evaluation.evaluator import agent_of

NAME = "jaxrl:Platformer(observation='graph', category='simple'{})"


@pytest.fixture(scope="module")
def policy():
    config = default_config()
    config.env.name = NAME.format("")
    config.network.architecture, config.network.core = "gcn", "none"
    config.network.graph_width, config.network.graph_layers = 4, 1
    resolved = resolve(config, 1)
    spec = registry.spec_of(resolved.env.name, ())
    agent = algorithms.build_agent(resolved, spec)
    return resolved, agent, jax.jit(agent.init)(jax.random.key(0))


def logits(agent, acting):
    """Of the player at the first node of the first level."""
    obs = zeros(agent.spec.observation_space, (1,))
    out = jax.jit(agent.forward)(acting, obs, agent.initial_carry(1), jnp.ones(1, bool), None)
    return np.asarray(out.distribution.logits)


@pytest.mark.slow
def test_the_same_levels_have_the_same_agent(policy) -> None:
    config, agent, _ = policy
    assert agent_of(config, agent, agent.spec) is agent
    again = registry.spec_of(NAME.format(", reward='sparse'"), ())
    assert agent_of(config, agent, again) is agent


@pytest.mark.slow
def test_other_levels_have_other_graphs_and_the_same_parameters(policy) -> None:
    config, agent, acting = policy
    spec = registry.spec_of(NAME.format(", levels='test'"), ())
    other = agent_of(config, agent, spec)
    assert jax.eval_shape(other.init, jax.random.key(0)) == jax.eval_shape(lambda: acting)
    before, there = logits(agent, acting), logits(other, acting)
    assert np.any(before != there)
    np.testing.assert_allclose(logits(other, other.prepare(acting)), there, rtol=1e-5, atol=1e-6)
