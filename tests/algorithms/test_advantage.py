"""Advantages against brute-force sums, rlax and numbers worked out by hand."""

import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import RolloutState, advantage, rollout_state
from jaxrl.config.sections import NormalizeConfig
from jaxrl.networks import normalizer
from jaxrl.types import Axis, Trajectory

T, B = 40, 16


def episodes(seed=0, done_rate=0.15):
    """Random rewards, values and flags, both flags at once included."""
    rng = np.random.default_rng(seed)
    reward, value, bootstrap = rng.normal(size=(3, T, B)).astype(np.float32)
    terminated, truncated = rng.random((2, T, B)) < done_rate
    assert (terminated & truncated).any()
    last_value = rng.normal(size=B).astype(np.float32)
    return (
        reward,
        value,
        last_value,
        terminated,
        truncated,
        np.where(truncated, bootstrap, 0).astype(np.float32),
    )


def brute_force(reward, value, last_value, terminated, truncated, bootstrap, gamma, gae_lambda):
    """sum_k (gamma lambda)^k delta_{t+k}, each sum written out anew and stopped at its episode's end."""
    values = np.concatenate([value, last_value[None]]).astype(np.float64)
    result = np.zeros(reward.shape)
    for b in range(reward.shape[1]):
        for t in range(reward.shape[0]):
            for k in range(t, reward.shape[0]):
                if terminated[k, b]:
                    successor = 0.0
                elif truncated[k, b]:
                    successor = bootstrap[k, b]
                else:
                    successor = values[k + 1, b]
                delta = reward[k, b] + gamma * successor - values[k, b]
                result[t, b] += (gamma * gae_lambda) ** (k - t) * delta
                if terminated[k, b] or truncated[k, b]:
                    break
    return result


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)])
def test_gae_equals_a_brute_force_sum(gamma, gae_lambda):
    # correctness 7: termination zeroes the bootstrap, truncation does not, either cuts the trace.
    data = episodes()
    result, target = jax.jit(advantage.gae)(*data, gamma, gae_lambda)
    np.testing.assert_allclose(result, brute_force(*data, gamma, gae_lambda), atol=2e-5)
    np.testing.assert_allclose(target, result + data[1], atol=1e-6)
    assert result.dtype == target.dtype == jnp.float32


@pytest.fixture
def rlax():
    """rlax, whose dependencies use what jax is about to remove: a warning today, an AttributeError then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import rlax
        except (ImportError, AttributeError) as error:
            pytest.skip(f"rlax does not import with jax {jax.__version__}: {error}")
    return rlax


@pytest.mark.slow
def test_gae_equals_rlax_where_episodes_only_terminate(rlax):
    reward, value, last_value, terminated, _, bootstrap = episodes(seed=1)
    never = np.zeros_like(terminated)
    result, _ = advantage.gae(reward, value, last_value, terminated, never, bootstrap, 0.97, 0.9)
    expected = jax.vmap(rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), 1)(
        reward, 0.97 * (1.0 - terminated), 0.9, jnp.concatenate([value, last_value[None]])
    )
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_gae_by_hand():
    # gamma = lambda = 1/2. Last row: 1 + 4/2 - 1 = 2. Second: terminated, 2 - 3 = -1, nothing after it.
    # First: 1 + 3/2 - 2 = 1/2, plus a quarter of -1.
    flags = jnp.array([[False], [True], [False]])
    result, target = advantage.gae(
        jnp.array([[1.0], [2.0], [1.0]]),
        jnp.array([[2.0], [3.0], [1.0]]),
        jnp.array([4.0]),
        flags,
        jnp.zeros_like(flags),
        jnp.zeros((3, 1)),
        0.5,
        0.5,
    )
    np.testing.assert_array_equal(result[:, 0], [0.25, -1.0, 2.0])
    np.testing.assert_array_equal(target[:, 0], [2.25, 2.0, 3.0])


@pytest.mark.parametrize(
    ("terminated", "truncated", "expected"),
    [
        (False, False, 1 + 0.5 * 6 - 2),  # V of the next row
        (True, False, 1 - 2),
        (False, True, 1 + 0.5 * 10 - 2),  # V of the final observation, not of the next episode's first
        (True, True, 1 - 2),  # correctness 9: both flags at once, termination wins
    ],
)
def test_gae_bootstrap(terminated, truncated, expected):
    # correctness 7 and 8; lambda = 0 leaves delta alone.
    args = [jnp.full((1, 1), x, jnp.float32) for x in (1.0, 2.0)]
    flags = [jnp.full((1, 1), x) for x in (terminated, truncated)]
    result, _ = advantage.gae(*args, jnp.array([6.0]), *flags, jnp.full((1, 1), 10.0), 0.5, 0.0)
    np.testing.assert_array_equal(result, [[expected]])


def test_gae_with_lambda_one_is_return_minus_value():
    reward, value, last_value, terminated, truncated, bootstrap = episodes(seed=2)
    returns, following = np.zeros((T, B)), last_value.astype(np.float64)
    for t in reversed(range(T)):
        following = np.where(terminated[t], 0.0, np.where(truncated[t], bootstrap[t], following))
        following = returns[t] = reward[t] + 0.95 * following
    result, target = advantage.gae(reward, value, last_value, terminated, truncated, bootstrap, 0.95, 1.0)
    np.testing.assert_allclose(target, returns, atol=2e-5)
    np.testing.assert_allclose(result, returns - value, atol=2e-5)


def test_gae_reads_no_bootstrap_where_nothing_was_truncated():
    # Final observations exist only at episode ends; elsewhere the network's value of them may be anything.
    reward, value, last_value, terminated, truncated, bootstrap = episodes(seed=3)
    polluted = np.where(truncated & ~terminated, bootstrap, np.float32(np.nan))
    clean = advantage.gae(reward, value, last_value, terminated, truncated, bootstrap, 0.99, 0.95)
    dirty = advantage.gae(reward, value, last_value, terminated, truncated, polluted, 0.99, 0.95)
    np.testing.assert_array_equal(clean[0], dirty[0])


def test_gae_row_after_an_end_does_not_reach_back():
    # correctness 10: the dummy row of NEXT_STEP autoreset follows a done row; whatever it holds is unseen.
    reward, value, last_value, terminated, truncated, bootstrap = episodes(seed=4)
    terminated[20], truncated[20] = True, False
    polluted = value.copy()
    polluted[21] = 1e6
    clean, _ = advantage.gae(reward, value, last_value, terminated, truncated, bootstrap, 0.99, 0.95)
    dirty, _ = advantage.gae(reward, polluted, last_value, terminated, truncated, bootstrap, 0.99, 0.95)
    np.testing.assert_array_equal(clean[:21], dirty[:21])


def test_gae_refuses_bfloat16():
    # correctness 22: advantages stay float32.
    reward, *rest = (jnp.asarray(x) for x in episodes())
    with pytest.raises(AssertionError):
        advantage.gae(reward.astype(jnp.bfloat16), *rest, 0.99, 0.95)


def test_discounted_returns_by_hand():
    # correctness 14: reset after the episode's end, so the last reward still counts to its own episode.
    reward = jnp.array([[1.0], [2.0], [4.0], [8.0]])
    done = jnp.array([[False], [True], [False], [False]])
    returns, final = advantage.discounted_returns(reward, done, jnp.array([6.0]), 0.5)
    np.testing.assert_array_equal(returns[:, 0], [4.0, 4.0, 4.0, 10.0])
    np.testing.assert_array_equal(final, [10.0])


def test_discounted_returns_go_on_across_rollouts():
    reward, _, _, terminated, truncated, _ = episodes(seed=5)
    done = terminated | truncated
    done[T // 2 - 1, ::2] = True
    whole, whole_final = advantage.discounted_returns(reward, done, jnp.zeros(B), 0.9)
    first, carry = advantage.discounted_returns(reward[: T // 2], done[: T // 2], jnp.zeros(B), 0.9)
    second, final = advantage.discounted_returns(reward[T // 2 :], done[T // 2 :], carry, 0.9)
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)
    np.testing.assert_array_equal(final, whole_final)
    np.testing.assert_array_equal(carry[::2], 0.0)


def test_an_environment_that_is_begun_anew_has_no_discounted_return():
    # No episode ended there: the game of an opponent that was exchanged, say, or one before a resume.
    rewards_TB, never = jnp.array([[1.0, 1.0], [2.0, 2.0]]), jnp.zeros((2, 2), bool)
    reset = never.at[0, 0].set(True)
    others = dict.fromkeys(("obs", "action", "action_mask", "carry", "next_obs", "extras"))
    rows = Trajectory(reward=rewards_TB, terminated=never, truncated=never, reset=reset, **others)
    learner = RolloutState(
        policy=None,  # type: ignore[arg-type]
        hyperparams=types.SimpleNamespace(gamma=jnp.float32(0.5)),
        updates=jnp.int32(0),
        opt_state=None,
        reward_stats=normalizer.init(jnp.float32(0)),
        discounted_return=jnp.array([6.0, 6.0]),
    )
    spec = types.SimpleNamespace(task_names=())
    after, _ = rollout_state.scaled_rewards(NormalizeConfig(rewards=True), Axis(), spec, learner, rows)
    np.testing.assert_array_equal(after.discounted_return, [2.5, 4.0])
    np.testing.assert_allclose(after.reward_stats.mean[0], np.mean([1.0, 2.5, 4.0, 4.0]), rtol=1e-6)


def test_explained_variance():
    for target, residual, expected in [(2.0, 0.0, 1.0), (2.0, 2.0, 0.0), (2.0, 3.0, -0.5), (0.0, 1.0, 0.0)]:
        assert advantage.explained_variance(jnp.float32(target), jnp.float32(residual)) == expected
