"""SAC: its losses beside plain numpy, its agent, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.algorithms.replay import Transitions
from jaxrl.algorithms.sac import rows as losses
from jaxrl.algorithms.sac.agent import CRITIC, SACAgent
from jaxrl.algorithms.sac.sac import SAC
from jaxrl.config import ConfigError, environment_spec, resolve
from jaxrl.types import Axis
from tests.algorithms.draws import drawn, on_device
from tests.algorithms.tiny import CONTINUOUS, MASKED, config_fields, copied, tiny_config

N, D, OBS = 16, 2, 3
_rng = np.random.default_rng(0)


def test_losses_are_those_of_the_paper() -> None:
    q, log_prob, weight = _rng.normal(size=(2, N)), _rng.normal(size=N), _rng.uniform(size=N)
    target, usable, alpha = _rng.normal(size=N), _rng.random(N) < 0.7, 0.3
    given = [jnp.float32(x) for x in (q, log_prob, target, weight)]
    soft = losses.soft_value(given[0], given[1], jnp.float32(alpha))
    loss, error = losses.critic_loss(given[0], given[2], given[3], jnp.asarray(usable))
    for i in range(N):
        assert soft[i] == pytest.approx(min(q[0, i], q[1, i]) - alpha * log_prob[i], abs=1e-6)
        squares = (q[0, i] - target[i]) ** 2 + (q[1, i] - target[i]) ** 2
        assert loss[i] == pytest.approx(usable[i] * weight[i] * squares / 2, abs=1e-5)
        distances = abs(q[0, i] - target[i]) + abs(q[1, i] - target[i])
        assert error[i] == pytest.approx(usable[i] * distances / 2, abs=1e-6)
    # Too little entropy raises the temperature.
    slope = jax.grad(losses.temperature_loss)
    assert float(slope(jnp.float32(0.0), jnp.float32(3.0), -2.0)) == -1.0
    assert float(slope(jnp.float32(0.0), jnp.float32(1.0), -2.0)) == 1.0


def test_a_row_that_is_not_usable_leaves_no_trace() -> None:
    def loss(q: jax.Array) -> jax.Array:
        usable = jnp.array([True, False])
        return losses.critic_loss(q, jnp.array([1.0, jnp.nan]), jnp.ones(2), usable)[0].sum()

    np.testing.assert_array_equal(jax.grad(loss)(jnp.zeros((2, 2))), [[-1.0, 0.0], [-1.0, 0.0]])


@functools.cache
def sac(**fields: Any) -> SAC:
    config = tiny_config("sac", **fields)
    agent = algorithms.build_agent(config, environment_spec("env.name", CONTINUOUS, CONTINUOUS, ()))
    built = algorithms.build(config, agent, Axis())
    assert isinstance(built, SAC)
    return built


def transitions(usable: np.ndarray, ready: bool = True) -> Transitions:
    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(_rng.normal(size=shape), jnp.float32)

    batch = Transitions(
        obs=normal(N, OBS),
        action=normal(N, D),
        action_mask=None,
        reward=normal(1, N),
        counts=jnp.ones((1, N), bool),
        terminated=jnp.arange(N) % 3 == 0,
        next_obs=normal(N, OBS),
        next_mask=None,
        usable=jnp.asarray(usable),
        weight=jnp.ones(N),
        **drawn(N, ready),
    )
    return on_device(batch)


@pytest.mark.slow
def test_the_target_is_the_soft_value_of_what_follows() -> None:
    algorithm = sac(learner__batch_size=N)
    agent: SACAgent = algorithm.agent
    learner = algorithm.init(jax.random.key(0), algorithm.hyperparameters(algorithm.config))
    batch, noise = transitions(np.ones(N, bool)), jnp.asarray(_rng.normal(size=(N, D)), jnp.float32)
    actor = {name: x for name, x in learner.policy.params.items() if name != CRITIC}
    found = algorithm._target(learner, actor, algorithm._rows(learner, batch), jnp.float32(0.5), noise[None])
    acting = dataclasses.replace(learner.policy, params=actor)
    out = agent.apply(acting, *algorithm.single_steps(batch.next_obs, None))
    mean, log_std = (np.float64(x[0]) for x in (out.distribution.mean, out.distribution.log_std))
    z = np.float64(noise)
    u = mean + np.exp(log_std) * z
    density = (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi) - np.log1p(-(np.tanh(u) ** 2))).sum(
        axis=-1
    )
    action = jnp.tanh(jnp.float32(u))[None]
    q = np.asarray(agent.critics.values(learner.target, batch.next_obs[None], action)[:, 0])
    value = q.min(axis=0) - 0.5 * density
    gamma = algorithm.config.learner.gamma  # type: ignore[attr-defined]
    expected = np.asarray(batch.reward[0]) + np.where(batch.terminated, 0.0, gamma * value)
    np.testing.assert_allclose(found[0], expected, atol=2e-5)


@pytest.mark.slow
def test_nothing_is_learnt_before_enough_is_kept() -> None:
    algorithm = sac(learner__batch_size=N)
    learner = algorithm.init(jax.random.key(0), algorithm.hyperparameters(algorithm.config))
    learn = jax.jit(algorithm.learn)
    same = learn(learner, transitions(np.zeros(N, bool), ready=False), jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, copied(same.learner), copied(learner))
    assert float(algorithm.exploration(learner)) == 1.0
    after = learn(learner, transitions(np.ones(N, bool)), jax.random.key(1)).learner
    assert float(algorithm.exploration(after)) == 0.0
    rate = algorithm.config.learner.target_rate  # type: ignore[attr-defined]
    jax.tree.map(
        lambda new, old, now: np.testing.assert_allclose(new, rate * now + (1 - rate) * old, atol=1e-6),
        copied(after.target), copied(learner.target), copied(after.policy.params[CRITIC]),
    )  # fmt: skip


@pytest.mark.slow
def test_first_actions_are_uniform_and_within_bounds() -> None:
    agent: SACAgent = sac().agent
    learner = sac().init(jax.random.key(0), sac().hyperparameters(sac().config))
    noise = agent.draw_noise(jax.random.key(2), (20_000,))
    obs, reset = jnp.zeros((1, OBS)), jnp.ones(1, bool)
    out = agent.forward(sac().acting(learner), obs, agent.initial_carry(1), reset, None)
    action, extras = jax.vmap(lambda z: agent.choose(out, z[None]))(noise)
    given = np.asarray(agent.to_env(action[:, 0]))
    assert np.isfinite(extras["log_prob"]).all()
    assert np.abs(given).max() <= 2.0
    counts = np.stack([np.histogram(given[:, i], bins=8, range=(-2, 2))[0] for i in range(D)])
    assert ((counts - 2_500) ** 2 / 2_500).sum(axis=1).max() < 24.3  # chi-squared, 7 degrees, 0.1%


@pytest.mark.slow
@pytest.mark.parametrize("aimed_at", [-30.0, 30.0])
def test_the_temperature_moves_towards_the_entropy_that_is_aimed_at(aimed_at: float) -> None:
    """No policy of two actions in [-1, 1] has that little or that much entropy (at most 2 log 2).

    Adam's first step is its rate, in the direction against the gradient of alpha (entropy - target).
    """
    algorithm = sac(learner__batch_size=N, learner__target_entropy=aimed_at)
    learner = algorithm.init(jax.random.key(0), algorithm.hyperparameters(algorithm.config))
    after = jax.jit(algorithm.learn)(learner, transitions(np.ones(N, bool)), jax.random.key(1)).learner
    rate = algorithm.config.learner.temperature_rate  # type: ignore[attr-defined]
    moved = float(after.log_temperature - learner.log_temperature)
    assert moved == pytest.approx(math.copysign(rate, aimed_at), rel=1e-3)


@pytest.mark.slow
def test_a_fixed_temperature_is_the_hyperparameter() -> None:
    """A learner whose temperature was changed learns as one that began with that temperature."""
    algorithm = sac(learner__batch_size=N, learner__learn_temperature=False, learner__temperature=0.2)
    given = algorithm.hyperparameters(algorithm.config)
    other = dataclasses.replace(given, temperature=jnp.float32(0.7))
    init = jax.jit(algorithm.init)
    began, same = (init(jax.random.key(0), numbers) for numbers in (given, other))
    changed = dataclasses.replace(began, hyperparams=other)
    batch = transitions(np.ones(N, bool))
    learn = jax.jit(algorithm.learn)
    after, *expected = (
        copied(learn(learner, batch, jax.random.key(1)).learner) for learner in (changed, same, began)
    )
    jax.tree.map(np.testing.assert_array_equal, after, expected[0])
    assert float(np.exp(after.log_temperature)) == pytest.approx(0.7)
    assert float(np.exp(expected[1].log_temperature)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"env__name": MASKED}, r"^`algorithm` \(='sac'\) needs continuous actions.*use `dqn`"),
        ({"network__core": "gru"}, r"^`sac.trace_length` \(=0\) must be above 0.*`network.core` is 'gru'"),
        ({"network__encoder": "identity"}, r"^`algorithm` \(='sac'\) takes vectors"),
        ({"learner__hindsight": "future"}, r"^`sac.hindsight` \(='future'\) needs an environment with goals"),
    ],
)
def test_what_it_cannot_learn_is_refused(fields: dict[str, Any], message: str) -> None:
    config = resolve(config_fields("sac", **fields), 1)
    spec = environment_spec("env.name", config.env.name, config.env.name, ())
    with pytest.raises(ConfigError, match=message):
        algorithms.build_agent(config, spec)


def test_dqn_refuses_continuous_actions() -> None:
    config = tiny_config("dqn", env__name=CONTINUOUS)
    spec = environment_spec("env.name", CONTINUOUS, CONTINUOUS, ())
    with pytest.raises(ConfigError, match=r"needs discrete actions.*use `sac`"):
        algorithms.build_agent(config, spec)
