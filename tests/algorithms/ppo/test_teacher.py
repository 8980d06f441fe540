"""PPO beside a teacher, and with a value function that warms up alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.ppo import kickstarting
from jaxrl.config import ConfigError
from jaxrl.metrics.reduction import row
from jaxrl.networks import normalizer
from jaxrl.networks.distributions import kl_divergence
from tests.algorithms.tiny import assert_equal, first_state, iteration_of, loud, tiny_config, with_policy

TAUGHT = {
    "learner__teacher": "a run",
    "learner__num_epochs": 1,
    "learner__num_minibatches": 1,
    "learner__learning_rate": 5e-2,
}


def taught(state: Any, policy: Any) -> Any:
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, teacher=policy))


@pytest.fixture(scope="module")
def program() -> Any:
    iteration = iteration_of(tiny_config("ppo", **TAUGHT))
    return iteration, jax.jit(iteration.iterate), jax.jit(iteration.rollout)


@pytest.mark.slow
def test_the_divergence_is_that_of_the_teacher_along_the_same_episodes(program: Any) -> None:
    iteration, iterate, rollout = program
    algorithm = iteration.learning.algorithm
    own, other = (first_state(iteration, seed) for seed in (0, 1))
    policy = dataclasses.replace(other.learner.policy, params=loud(other.learner.policy.params, 1000.0))
    state, total = taught(own, policy), []
    carry = algorithm.agent.initial_carry(8)
    # Two rollouts: the teacher's memory goes on through the second.
    for _ in range(2):
        _, trajectory, _ = rollout(state)
        acting = state.learner.policy

        def along(acting: Any, carry: Any, trajectory: Any = trajectory) -> Any:
            def step(carry: Any, xs: Any) -> Any:
                out = algorithm.agent.forward(acting, xs[0], carry, xs[1], xs[2])
                return out.carry, out.distribution

            xs = (trajectory.obs, trajectory.reset, trajectory.action_mask)
            return jax.lax.scan(step, carry, xs)

        first = jax.tree.map(lambda x: x[0], trajectory.carry)
        carry, theirs = along(policy, carry)
        _, ours = along(acting, first)
        total.append(float(kl_divergence(theirs, ours).mean()))
        state, metrics = iterate(state)
        found = row(metrics)
        assert found["ppo/teacher_kl"] == pytest.approx(total[-1], rel=1e-4)
    assert min(total) > 0.05
    assert_equal(state.learner.teacher, policy)
    np.testing.assert_allclose(*map(jax.tree.leaves, (state.learner.teacher_carry, carry)), atol=1e-5)


@pytest.mark.slow
def test_the_policy_is_pulled_and_less_so_later(program: Any) -> None:
    iteration, iterate, _ = program
    own, other = (first_state(iteration, seed) for seed in (0, 1))
    policy = dataclasses.replace(other.learner.policy, params=loud(other.learner.policy.params, 1000.0))
    state, found = taught(own, policy), []
    for _ in range(10):
        state, metrics = iterate(state)
        found.append(row(metrics))
    # Ten updates in all, of which the weight falls over the first half.
    weights = [each["ppo/teacher_coef"] for each in found]
    np.testing.assert_allclose(weights, [1, 0.8, 0.6, 0.4, 0.2, 0, 0, 0, 0, 0], atol=1e-6)
    # Five updates, as if the first half were over.
    late = dataclasses.replace(own.learner, updates=jnp.int32(5))
    free = taught(dataclasses.replace(own, learner=late), policy)
    for _ in range(5):
        free, metrics = iterate(free)
    assert row(metrics)["ppo/teacher_coef"] == 0
    assert found[5]["ppo/teacher_kl"] < 0.9 * row(metrics)["ppo/teacher_kl"]


@pytest.mark.slow
def test_a_teacher_that_was_not_read_is_noticed(program: Any) -> None:
    iteration, iterate, _ = program
    state, metrics = iterate(first_state(iteration))
    assert not iteration.learning.algorithm.is_finite(state.learner, metrics)


def test_the_weight_by_hand() -> None:
    fields = {"learner__teacher_coef": 2.0, "learner__teacher_fraction": 0.5}
    config = tiny_config("ppo", **fields)
    learner = jax.eval_shape(lambda: first_state(iteration_of(config))).learner
    learner = dataclasses.replace(learner, planned=None)  # shapes alone have no number
    total = config.total_updates
    for share, expected in ((0.0, 2.0), (0.25, 1.0), (0.5, 0.0), (0.75, 0.0)):
        at = dataclasses.replace(learner, updates=jnp.int32(share * total))
        assert float(kickstarting.teacher_coef(config, at)) == expected
        # Of a run whose budget is in seconds, by those.
        at = dataclasses.replace(learner, updates=jnp.int32(0), elapsed=jnp.float32(share))
        assert float(kickstarting.teacher_coef(config, at)) == expected
    config = tiny_config("ppo", **{**fields, "learner__teacher_fraction": 0.0})
    assert float(kickstarting.teacher_coef(config, dataclasses.replace(learner, updates=jnp.int32(1)))) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("separate", [False, True])
def test_only_the_value_function_warms_up(separate: bool) -> None:
    # Nor do the statistics move that a policy was trained with.
    config = tiny_config(
        "ppo", learner__value_warmup=2, network__separate_value=separate, normalize__observations=separate
    )
    iteration = iteration_of(config)
    iterate = jax.jit(iteration.iterate)
    before = first_state(iteration)
    if separate:
        rows = 3 + 2 * jax.random.normal(jax.random.key(1), (50, 3))
        stats = normalizer.update(normalizer.init(rows[0]), rows)
        before = with_policy(before, obs_stats=stats)
    agent = iteration.learning.algorithm.agent
    obs = jax.random.normal(jax.random.key(0), (5, 3))

    def said(state: Any) -> tuple[Any, Any]:
        inputs = (obs, agent.initial_carry(5), jnp.ones(5, bool), jnp.ones((5, 3), bool))
        out = agent.forward(state.learner.policy, *inputs)
        return out.distribution, out.value

    state = iterate(iterate(before)[0])[0]
    assert_equal(said(state)[0], said(before)[0])
    assert np.abs(said(state)[1] - said(before)[1]).max() > 1e-3
    if not separate:
        moved = jax.tree.map(
            lambda x, y: bool((x != y).any()), state.learner.policy.params, before.learner.policy.params
        )
        assert {name for name, x in moved.items() if any(jax.tree.leaves(x))} == {"value"}
    after = iterate(state)[0]
    assert np.abs(said(after)[0].logits - said(before)[0].logits).max() > 1e-5
    # The policy's first updates are those of an Adam that has seen nothing (Kingma and Ba 2015, algorithm 1).
    flat = jax.flatten_util.ravel_pytree(state.learner.policy.params)[0]
    adam = optimizer.optimizer(0.5, 0.0).init(flat)
    fresh = dataclasses.replace(state, learner=dataclasses.replace(state.learner, opt_state=adam))
    assert_equal(after, iterate(fresh)[0])


def test_make_train_reads_no_teacher() -> None:
    import jaxrl
    from tests.algorithms.tiny import config_fields

    with pytest.raises(ConfigError, match="`ppo.teacher` .='a run'. must be empty: make_train"):
        jaxrl.make_train(config_fields("ppo", learner__teacher="a run"))


@pytest.mark.slow
def test_a_mixture_stays_where_its_teacher_is() -> None:
    """PPO on a mixture of Gaussians: ratio 1 and no divergence from itself at first, both later."""
    env = "tests.algorithms.environments:Chance(actions='continuous')"
    network = {"network__head": "gaussian_mixture", "network__mixture_components": 3}
    iteration = iteration_of(tiny_config("ppo", **TAUGHT, **network, env__name=env))
    iterate = jax.jit(iteration.iterate)
    state = first_state(iteration)
    state = taught(state, state.learner.policy)
    found = []
    for _ in range(2):
        state, metrics = iterate(state)
        found.append(row(metrics))
    for name in ("ppo/teacher_kl", "ppo/approx_kl"):
        assert abs(found[0][name]) < 1e-6
    assert found[1]["ppo/teacher_kl"] > 1e-3
    assert all(np.isfinite(x) for x in found[1].values())
