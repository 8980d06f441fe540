"""PPO's updates on one trajectory: what the first minibatch says, what is averaged, when they stop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.algorithms.advantage import gae
from jaxrl.algorithms.ppo import losses
from jaxrl.types import Acting, Axis, EpisodeTotals
from tests.algorithms.updates import assert_same_update, with_numbers
from tests.compiled_programs import Noise, start, tiny_program, with_policy, with_statistics

T, B = 16, 8


# Whole rollouts as sequences: with mingru; the carries of lstm between sequences: with shorter ones, and with
# those of 4 steps in the fast test below. Without a core: tests/algorithms/test_extras.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "length", "parts"), [pytest.param("lstm", 1, 2, marks=pytest.mark.long), ("mingru", T, 2)]
)
def test_unchanged_parameters_have_ratio_one_everywhere(core, length, parts):
    # correctness 1, and with it 2 to 5: the update, on sequences, must find the log-probability that the
    # rollout found step by step, at every step of every minibatch. With a clip range of 1e-5 the clip
    # fraction is 0 only if no ratio is further from 1 than that; the KL is half the mean square of the
    # differences.
    program = tiny_program(
        network__core=core,
        ppo__sequence_length=length,
        ppo__gradient_accumulation=parts,
    )
    state = with_numbers(start(program), learning_rate=0.0, clip_range=1e-5)
    params = state.learner.policy.params
    iterate = jax.jit(program.iterate)
    for _ in range(2):  # the second starts from a carry that is not zero
        state, metrics = iterate(state)
        assert metrics["ppo/clip_fraction"] == 0.0
        assert metrics["ppo/approx_kl"] < 1e-11
        assert metrics["ppo/learning_rate"] == 0.0
        assert metrics["episode/count"] > 0  # resets inside the sequences
        assert metrics["grad/norm"] > 1e-3
    jax.tree.map(np.testing.assert_array_equal, state.learner.policy.params, params)
    assert state.learner.updates == 2 * 4


def advantages(trajectory, state):
    """Advantages, not normalised, and value targets, float64."""
    h = state.learner.hyperparams
    t = trajectory
    arrays = (t.reward, t.extras["value"], t.last, t.terminated, t.truncated, t.bootstrap)
    return [np.asarray(x, np.float64) for x in jax.jit(gae)(*arrays, h.gamma, h.gae_lambda)]


@pytest.mark.slow
def test_one_update_equals_adam_on_the_mean_loss(rolled):
    # correctness 12: the gradient is that of the mean over the whole minibatch, advantages are normalised
    # over the whole batch. Written here as anyone would, over the whole rollout as one sequence.
    base, state, trajectory, totals = rolled
    program = tiny_program(ppo__num_minibatches=1, ppo__num_epochs=1, log__layers=True)
    trajectory = trajectory.replace(carry=jax.tree.map(lambda x: x[:1], trajectory.carry))
    advantage, target = advantages(trajectory, state)
    advantage = jnp.float32((advantage - advantage.mean()) / (advantage.std() + 1e-8))
    carry = jax.tree.map(lambda x: x[0], trajectory.carry)
    h = state.learner.hyperparams

    def mean_loss(params):
        out = base.agent.apply(Acting(params, None), trajectory.obs, carry, trajectory.reset, None)
        ratio = jnp.exp(out.distribution.log_prob(trajectory.action) - trajectory.extras["log_prob"])
        clipped = jnp.clip(ratio, 1 - h.clip_range, 1 + h.clip_range)
        policy = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        value = 0.5 * jnp.square(out.value - target).mean()
        entropy = out.distribution.entropy().mean()
        return policy + h.value_coef * value - h.entropy_coef * entropy, (policy, value, entropy)

    (_, parts), gradient = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(state.learner.policy.params)
    oracle = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2, eps=1e-5))
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer power
        first = jax.jit(lambda gradient, params: oracle.update(gradient, oracle.init(params))[0])
        step = first(gradient, state.learner.policy.params)
    after, metrics = jax.jit(program.update)(state, trajectory, totals)
    norm = np.sqrt(sum(np.square(x).sum() for x in map(np.asarray, jax.tree.leaves(gradient))))
    np.testing.assert_allclose(metrics["grad/norm"], norm, rtol=1e-4)  # before clipping
    layers = [x for name, x in metrics.items() if name.startswith("grad/norm/")]
    assert len(layers) > 2
    np.testing.assert_allclose(np.sqrt(np.sum(np.square(layers))), norm, rtol=1e-4)
    assert norm > 0.5  # so that it is clipped
    for name, expected in zip(("policy", "value", "entropy"), parts, strict=True):
        np.testing.assert_allclose(metrics[f"loss/{name}"], expected, rtol=1e-4, atol=1e-6)
    jax.tree.map(
        lambda got, p, s: np.testing.assert_allclose(got, p + s, atol=1e-5),
        after.learner.policy.params,
        state.learner.policy.params,
        step,
    )
    residual = target - np.asarray(trajectory.extras["value"])
    np.testing.assert_allclose(
        metrics["ppo/explained_variance"], 1 - residual.var() / target.var(), atol=1e-5
    )


@pytest.mark.slow
def test_rows_that_are_not_valid_reach_nothing():
    # correctness 10: the row after an episode's end, where the environment ignores the action, stays out of
    # losses, advantage moments, diagnostics and statistics, whatever it holds.
    program = tiny_program(
        Noise(terminate=0.0, truncate=0.3),
        ppo__clip_value=True,
        ppo__sequence_length=4,
        normalize__observations=True,
        normalize__rewards=True,
    )
    state, trajectory, totals = jax.jit(program.rollout)(with_statistics(start(program), rows=50))
    # Turn the last row of each episode of two steps or more into a dummy row after an end.
    last = np.asarray(trajectory.truncated)
    dummy = last & np.roll(~last, 1, axis=0)
    dummy[0] = False
    before = np.roll(dummy, -1, axis=0)
    assert 10 < dummy.sum() < T * B / 2
    trajectory = trajectory.replace(
        valid=jnp.asarray(~dummy),
        truncated=trajectory.truncated | before,
        reward=jnp.where(dummy, 0.0, trajectory.reward),
    )
    garbage = lambda x, bad: jnp.where(dummy.reshape(dummy.shape + (1,) * (x.ndim - 2)), bad, x)  # noqa: E731
    polluted = trajectory.replace(
        obs=garbage(trajectory.obs, 50.0),
        action=garbage(trajectory.action, 1),
        reward=garbage(trajectory.reward, jnp.nan),
        extras={name: garbage(x, jnp.nan) for name, x in trajectory.extras.items()},
        bootstrap=garbage(trajectory.bootstrap, jnp.nan),
    )
    update = jax.jit(program.update)
    clean, dirty = update(state, trajectory, totals), update(state, polluted, totals)
    assert_same_update(dirty, clean)
    assert clean[0].learner.updates == 4
    assert clean[0].learner.policy.obs_stats.count == 50 + float((~dummy).sum())
    assert clean[0].learner.reward_stats.count == float((~dummy).sum())
    np.testing.assert_array_equal(
        dirty[0].learner.policy.obs_stats.m2[0], clean[0].learner.policy.obs_stats.m2[0]
    )
    np.testing.assert_array_equal(dirty[0].learner.reward_stats.m2[0], clean[0].learner.reward_stats.m2[0])
    # The same with all rows valid is another update: the mask is read.
    everything, _ = update(state, polluted.replace(valid=jnp.ones((T, B), bool)), totals)
    assert everything.learner.policy.obs_stats.count == 50 + T * B


@pytest.mark.slow
def test_losses_are_means_over_the_valid_steps(rolled):
    # correctness 12 and 10: divided by the number of valid steps, not by the size of the minibatch.
    program, state, trajectory, totals = rolled
    state = with_numbers(state, learning_rate=0.0)
    valid = np.random.default_rng(0).random((T, B)) < 0.5
    program = tiny_program(ppo__sequence_length=4, ppo__num_minibatches=1, ppo__num_epochs=1)
    _, metrics = jax.jit(program.update)(state, trajectory.replace(valid=jnp.asarray(valid)), totals)
    advantage, target = (x[valid] for x in advantages(trajectory, state))
    value = np.asarray(trajectory.extras["value"])[valid]
    normalized = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    np.testing.assert_allclose(metrics["loss/value"], 0.5 * np.square(value - target).mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["loss/policy"], -normalized.mean(), atol=1e-5)
    residual = target - value
    np.testing.assert_allclose(
        metrics["ppo/explained_variance"], 1 - residual.var() / target.var(), rtol=1e-4
    )


@pytest.fixture(scope="module")
def update_with_target(rolled):
    """Updates with a given `target_kl`: (state before, state after, metrics)."""
    _, state, trajectory, totals = rolled
    program = tiny_program(ppo__sequence_length=4, ppo__target_kl=1.0, ppo__schedule="linear")
    update = jax.jit(program.update)

    def with_target(target_kl, state=state, trajectory=trajectory):
        state = with_numbers(state, target_kl=target_kl)
        return state, *update(state, trajectory, totals)

    return with_target


def test_unchanged_parameters_have_ratio_one(rolled, update_with_target):
    # As above, in the second of two rollouts, by a program that is compiled for the tests below.
    _, state, trajectory, _ = rolled
    still = with_numbers(state, learning_rate=0.0, clip_range=1e-5)
    before, after, metrics = update_with_target(1.0, still)
    assert trajectory.reset[1:].any()
    assert metrics["ppo/clip_fraction"] == 0.0
    assert metrics["ppo/approx_kl"] < 1e-11
    assert metrics["grad/norm"] > 1e-3
    jax.tree.map(np.testing.assert_array_equal, after.learner.policy.params, before.learner.policy.params)
    assert after.learner.updates == 4


def test_kl_stop_counts_and_schedules_only_the_updates_made(update_with_target):
    # correctness 19: the first minibatch has KL 0 and is made; its step moves the policy, so the second
    # stops, and so do all after it, also in later epochs.
    before, after, metrics = update_with_target(1e-6)
    assert after.learner.updates == metrics["ppo/updates"] == 1
    assert after.iteration == before.iteration + 1
    counts = [x for x in jax.tree.leaves(after.learner.opt_state) if x.dtype == jnp.int32]
    assert counts == [1]
    # Adam's first step is no longer than the rate in any parameter; a second one would be seen.
    moved = jax.tree.map(
        lambda a, b: float(jnp.abs(a - b).max()), after.learner.policy.params, before.learner.policy.params
    )
    assert 0.9e-2 < max(jax.tree.leaves(moved)) <= 1.001e-2
    # Averages are over the one that was made, at the full rate; the next rollout goes on from there: of 40
    # planned updates one is done.
    np.testing.assert_allclose(metrics["ppo/learning_rate"], 1e-2, rtol=1e-6)
    assert metrics["ppo/approx_kl"] < 1e-10
    _, _, following = update_with_target(1e-6, with_policy(after, params=before.learner.policy.params))
    np.testing.assert_allclose(following["ppo/learning_rate"], 1e-2 * (1 - 1 / 40), rtol=1e-5)


def test_kl_stop_lasts_to_the_end_of_the_iteration(rolled, update_with_target):
    # correctness 19: one sequence with other old log-probabilities puts one of the two minibatches of each
    # epoch above the target. Whichever comes first, the second epoch makes no update.
    _, state, trajectory, _ = rolled
    log_prob = trajectory.extras["log_prob"].at[:4, 0].add(1.0)
    shifted = trajectory.replace(extras=trajectory.extras | {"log_prob": log_prob})
    _, after, _ = update_with_target(1e-3, with_numbers(state, learning_rate=0.0), shifted)
    assert after.learner.updates <= 1


def test_kl_below_the_target_stops_nothing(update_with_target):
    _, after, metrics = update_with_target(1e9)
    assert after.learner.updates == 4
    # Full rate, then 39, 38 and 37 fortieths of it.
    np.testing.assert_allclose(metrics["ppo/learning_rate"], 1e-2 * (1 - 1.5 / 40), rtol=1e-5)


def test_kl_stop_before_the_first_update(update_with_target):
    before, after, metrics = update_with_target(-1.0)
    assert after.learner.updates == 0
    jax.tree.map(np.testing.assert_array_equal, after.learner.policy.params, before.learner.policy.params)
    jax.tree.map(np.testing.assert_array_equal, after.learner.opt_state, before.learner.opt_state)
    # Averages over updates have no value; see test_proximal.py.
    assert np.isnan(metrics["loss/policy"])
    assert np.isfinite(metrics["ppo/explained_variance"])


@pytest.mark.slow
def test_the_form_for_gpus_makes_the_same_updates(rolled, update_with_target):
    # There the reports of all updates are one vector, also those of updates that were not made.
    _, state, trajectory, totals = rolled
    _, *expected = update_with_target(1e-6)
    fields = {"ppo__sequence_length": 4, "ppo__target_kl": 1.0, "ppo__schedule": "linear"}
    program = tiny_program(axis=Axis(platform="gpu"), **fields)
    got = jax.jit(program.update)(with_numbers(state, target_kl=1e-6), trajectory, totals)
    assert got[1]["ppo/updates"] == 1
    assert_same_update(got, expected)


@pytest.mark.slow
def test_bfloat16_reaches_nothing_that_is_kept():
    # correctness 22: advantages, log-probabilities, values, normaliser and carry stay float32; parameters
    # too.
    program = tiny_program(
        network__compute_dtype="bfloat16", normalize__observations=True, normalize__rewards=True
    )
    state = jax.eval_shape(lambda: start(program))
    after, trajectory, totals = jax.eval_shape(program.rollout, state)
    updated, metrics = jax.eval_shape(program.update, after, trajectory, totals)
    leaves = jax.tree.leaves((trajectory, totals, updated, metrics))
    assert not [x for x in leaves if x.dtype == jnp.bfloat16]
    assert [x.dtype for x in jax.tree.leaves(updated)] == [x.dtype for x in jax.tree.leaves(state)]


@pytest.mark.slow
def test_value_clipping_is_what_the_config_asks_for(rolled):
    _, state, trajectory, totals = rolled
    # Old values that are off by 1: clipping then measures from them.
    value = trajectory.extras["value"]
    shifted = trajectory.replace(extras=trajectory.extras | {"value": value + 1.0})
    state = with_numbers(state, learning_rate=0.0)
    program = tiny_program(
        ppo__sequence_length=4, ppo__clip_value=True, ppo__num_minibatches=1, ppo__num_epochs=1
    )
    _, metrics = jax.jit(program.update)(state, shifted, totals)
    _, target = advantages(shifted, state)
    expected = losses.clipped_value_loss(
        value, value + 1.0, jnp.float32(target), state.learner.hyperparams.clip_range
    )
    np.testing.assert_allclose(metrics["loss/value"], expected.mean(), rtol=1e-4)
    assert float(losses.value_loss(value, jnp.float32(target)).mean()) < expected.mean()


@pytest.mark.slow
def test_totals_are_reported_as_they_are(updated, rolled):
    totals = rolled[3]
    assert isinstance(totals, EpisodeTotals)
    metrics = updated[1]
    assert metrics["episode/count"] == totals.count > 0
    assert metrics["episode/return"] == totals.episode_return / totals.count
    assert metrics["episode/length"] == totals.length / totals.count
