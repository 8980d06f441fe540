"""Updates on trajectories of an older policy: what they are measured against, and how they are weighted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.metrics.reduction import Interval, row
from jaxrl.networks import normalizer
from jaxrl.types import Acting, BehaviourPolicy
from tests.algorithms.updates import with_numbers
from tests.compiled_programs import Noise, start, tiny_program, with_policy, with_statistics

FIXED = {"network__core": "none", "ppo__num_minibatches": 2, "ppo__num_epochs": 1}


def moved(state, scale=0.05):
    """The state after an update that the collector has not seen: other parameters."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: x + jnp.float32(scale * rng.normal(size=x.shape)), state.learner.policy.params
    )
    return with_policy(state, params=params)


def evaluated(program, params, trajectory):
    """Log-probabilities under `params`, from the stored carries, [T, B]."""
    length, chunks = program.config.sequence_length, program.config.num_chunks
    parts = []
    for i in range(chunks):
        cut = lambda x, i=i: x[i * length : (i + 1) * length]  # noqa: E731
        carry = jax.tree.map(lambda x, i=i: x[i], trajectory.carry)
        out = program.agent.apply(
            Acting(params, None), cut(trajectory.obs), carry, cut(trajectory.reset), None
        )
        parts.append(out.distribution.log_prob(cut(trajectory.action)))
    return jnp.concatenate(parts)


@pytest.mark.slow
def test_an_update_is_measured_from_where_it_starts():
    # correctness 27: against the policy that collected, all of these would be far from zero.
    recurrent = {"network__core": "lstm", "ppo__sequence_length": 4, "ppo__gradient_accumulation": 2}
    program = tiny_program(**FIXED | recurrent)
    state, trajectory, totals = jax.jit(program.rollout)(start(program))
    state = with_numbers(moved(state), learning_rate=0.0, clip_range=1e-5)
    update = jax.jit(program.update)
    _, coupled = update(state, trajectory, totals)
    assert coupled["ppo/clip_fraction"] > 0.9
    assert coupled["ppo/approx_kl"] > 1e-4
    _, metrics = update(state, trajectory.replace(behaviour=BehaviourPolicy(None)), totals)
    assert metrics["ppo/clip_fraction"] == 0.0
    assert metrics["ppo/approx_kl"] < 1e-11
    # All that the age of the data leaves is the weight of each step.
    weight = jnp.exp(
        evaluated(program, state.learner.policy.params, trajectory) - trajectory.extras["log_prob"]
    )
    assert weight.std() > 0.01
    prepared = jax.jit(program.iteration.learning.algorithm.prepare)(state.learner, trajectory)
    advantage = prepared.batch.rows["advantage"]
    np.testing.assert_allclose(metrics["loss/policy"], -(weight * advantage).mean(), atol=1e-5)


@pytest.mark.slow
def test_a_target_kl_limits_the_update_and_not_the_age_of_the_data():
    program = tiny_program(ppo__target_kl=1.0, **FIXED)
    state, trajectory, totals = jax.jit(program.rollout)(start(program))
    state = with_numbers(moved(state), target_kl=1e-6)
    update = jax.jit(program.update)
    after, _ = update(state, trajectory, totals)
    assert after.learner.updates == 0
    after, metrics = update(state, trajectory.replace(behaviour=BehaviourPolicy(None)), totals)
    assert after.learner.updates == 1
    assert metrics["ppo/approx_kl"] < 1e-10


@pytest.mark.slow
def test_observations_are_normalised_as_the_rollout_normalised_them():
    # correctness 27: the same parameters and other statistics would be another policy.
    program = tiny_program(Noise(offset=2.0), normalize__observations=True, **FIXED)
    state, trajectory, totals = jax.jit(program.rollout)(with_statistics(start(program), rows=50))
    state = with_numbers(state, learning_rate=0.0, clip_range=1e-5)
    update = jax.jit(program.update)
    _, expected = update(state, trajectory, totals)
    old = state.learner.policy.obs_stats
    newer = with_policy(state, obs_stats=normalizer.update(old, trajectory.obs))
    _, wrong = update(newer, trajectory, totals)
    assert wrong["ppo/clip_fraction"] > 0.5
    after, metrics = update(newer, trajectory.replace(behaviour=BehaviourPolicy(old)), totals)
    for name in ("loss/policy", "loss/value", "loss/entropy", "ppo/clip_fraction", "grad/norm"):
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-4, atol=1e-6)
    # The statistics go on from the newest.
    assert after.learner.policy.obs_stats.count == 50 + 2 * trajectory.reward.size


@pytest.mark.slow
def test_rows_that_are_not_valid_weigh_nothing():
    # correctness 10, whatever such rows hold.
    program = tiny_program(**FIXED)
    state, trajectory, totals = jax.jit(program.rollout)(start(program))
    valid = jnp.ones(trajectory.reward.shape, bool).at[3].set(False)
    trajectory = trajectory.replace(valid=valid, behaviour=BehaviourPolicy(None))
    extras = trajectory.extras | {"log_prob": trajectory.extras["log_prob"].at[3].set(jnp.nan)}
    polluted = trajectory.replace(extras=extras, action=trajectory.action.at[3].set(1))
    update = jax.jit(program.update)
    clean, dirty = update(moved(state), trajectory, totals), update(moved(state), polluted, totals)
    learned = [(state.learner, metrics) for state, metrics in (clean, dirty)]
    jax.tree.map(np.testing.assert_array_equal, *learned)


@pytest.mark.slow
def test_an_iteration_without_updates_adds_nothing_to_the_averages():
    program = tiny_program(ppo__target_kl=1.0, **FIXED)
    learning = program.iteration.learning
    state, trajectory, totals = jax.jit(program.rollout)(start(program))
    update = jax.jit(learning.update)
    interval = Interval.empty(learning.metrics)
    _, metrics = update(with_numbers(state, target_kl=1e9), trajectory, totals)
    once = row(interval.add(metrics).metrics)
    after, nothing = update(with_numbers(state, target_kl=-1.0), trajectory, totals)
    assert after.learner.updates == 0
    assert learning.algorithm.is_finite(after.learner, nothing)
    assert row(interval.add(nothing).metrics).keys().isdisjoint({"loss/policy", "grad/norm"})
    both = row(interval.add(metrics).add(nothing).metrics)
    names = [name for name in once if name.startswith(("loss/", "grad/", "ppo/approx", "ppo/learning"))]
    assert len(names) > 5
    assert {name: both[name] for name in names} == {name: once[name] for name in names}
    # One of two updates made weighs half as much as two.
    _, half = update(with_numbers(state, target_kl=1e-6), trajectory, totals)
    rates = row(interval.add(metrics).add(half).metrics)
    expected = (2 * once["loss/value"] + float(half["loss/value"].value())) / 3
    np.testing.assert_allclose(rates["loss/value"], expected, rtol=1e-6)
