"""Running statistics against numpy in float64, over batches, masks and simulated devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks import normalizer
from tests import rounding

BATCHES, T, B, FEATURES = 100, 100, 50, 2  # 5e5 rows of 2 features: 1e6 numbers
update = jax.jit(normalizer.update)
normalize = jax.jit(normalizer.normalize, static_argnames="clip")


def large_mean_data():
    """float32[BATCHES, T, B, FEATURES]; mean 1e4, unit variance, and a drift from batch to batch."""
    rng = np.random.default_rng(0)
    drift = np.linspace(-2, 2, BATCHES)[:, None, None, None]
    return (1e4 + drift + rng.normal(size=(BATCHES, T, B, FEATURES))).astype(np.float32)


def fold(data, **kwargs):
    return fold_from(normalizer.init(data[0][0, 0]), data, **kwargs)


def fold_from(stats, data, **kwargs):
    return jax.lax.scan(lambda s, x: (normalizer.update(s, x, **kwargs), None), stats, data)[0]


def assert_moments(stats, rows, rtol=1e-4):
    """Against float64 moments of `rows` [n, ...]; the mean in standard deviations."""
    rows = rows.astype(np.float64)
    assert stats.count == len(rows)
    np.testing.assert_allclose(normalizer.std(stats)[0], rows.std(0), rtol=rtol)
    np.testing.assert_array_less(np.abs(stats.mean[0] - rows.mean(0)), 2e-3 * rows.std(0))


def test_a_million_numbers_with_a_large_mean():
    # correctness 13: sum(x^2) - sum(x)^2 / n loses everything here: near 1e8, float32 has a spacing of 8.
    data = large_mean_data()
    assert_moments(fold(data), data.reshape(-1, FEATURES))


def test_one_huge_batch_with_a_large_mean():
    # The first batch has no running mean to lean on: its own two passes must suffice.
    data = large_mean_data().reshape(1000, 500, FEATURES)
    stats = update(normalizer.init(data[0, 0]), data)
    assert_moments(stats, data.reshape(-1, FEATURES), rtol=1e-5)


def test_mean_keeps_moving_after_many_batches():
    # correctness 13: 8000 batches at 1e4 and as many at 1e4 + 1. The last ones move the mean by 3e-5 each,
    # far below 1e-3, the spacing of float32 there.
    stats = normalizer.init(jnp.float32(0))
    levels = jnp.repeat(jnp.array([1e4, 1e4 + 1], jnp.float32), 8000)
    stats, _ = jax.lax.scan(lambda s, x: (normalizer.update(s, jnp.array([x, x])), None), stats, levels)
    np.testing.assert_allclose(stats.mean[0], 1e4 + 0.5, atol=1e-3)
    np.testing.assert_allclose(normalizer.std(stats)[0], 0.5, rtol=1e-3)


def test_spread_stays_after_very_many_small_batches():
    # From 2^24 batches on float32 no longer counts one more, and the deviations that went on adding up made
    # the variance grow: by 1.6% here, and without end.
    rows = 1.2 * jax.random.normal(jax.random.key(0), (2**18, 1))
    stats = normalizer.init(jnp.float32(0)).replace(count=jnp.float32(2**24), m2=(jnp.float32(1.44 * 2**24),))
    np.testing.assert_allclose(normalizer.std(fold_from(stats, rows))[0], 1.2, rtol=3e-3)


def test_update_by_hand():
    # {1, 3} has mean 2 and m2 2; with {8}: mean 4, m2 9 + 1 + 16 = 26.
    stats = update(normalizer.init(jnp.float32(0)), jnp.array([1.0, 3.0]))
    assert (stats.count, stats.mean[0], stats.m2[0]) == (2, 2, 2)
    stats = update(stats, jnp.array([8.0]))
    np.testing.assert_allclose([stats.count, stats.mean[0], stats.m2[0]], [3, 4, 26], rtol=1e-6)


@pytest.mark.parametrize("num_devices", [2, 8])
def test_devices_equal_one_device(num_devices):
    # correctness 12 and 13: each device's environments get a mean of their own, so that averaging the
    # devices' variances, which forgets the variance between them, would be far off.
    rng = np.random.default_rng(1)
    data = (100 + 10 * np.arange(16)[None, :, None] + rng.normal(size=(64, 16, 3))).astype(np.float32)
    mask = rng.random((64, 16)) < 0.7
    of_device = functools.partial(normalizer.update, psum=lambda tree: jax.lax.psum(tree, "data"))
    of_devices = jax.jit(jax.vmap(of_device, (None, 1, 1), axis_name="data"))
    stats = normalizer.init(data[0, 0])
    sharded = normalizer.init(data[0, 0])
    for rows in (slice(0, 32), slice(32, 64)):
        stats = update(stats, data[rows], mask[rows])
        split_data = data[rows].reshape(32, num_devices, -1, 3)
        split_mask = mask[rows].reshape(32, num_devices, -1)
        per_device = jax.tree.map(np.asarray, of_devices(sharded, split_data, split_mask))
        for leaf in jax.tree.leaves(per_device):
            np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[0], leaf.shape))
        sharded = jax.tree.map(lambda x: x[0], per_device)
    assert_moments(stats, data[mask], rtol=1e-5)
    np.testing.assert_array_equal(sharded.count, stats.count)
    np.testing.assert_allclose(sharded.mean[0], stats.mean[0], rtol=rounding.of_sums(data[..., 0].size))
    np.testing.assert_allclose(sharded.m2[0], stats.m2[0], rtol=rounding.of_sums(data[..., 0].size))


def test_masked_rows_are_not_seen():
    # correctness 10: dummy rows stay out of the statistics, whatever they hold.
    rng = np.random.default_rng(2)
    data = rng.normal(size=(30, 8, 3)).astype(np.float32)
    mask = rng.random((30, 8)) < 0.5
    polluted = np.where(mask[..., None], data, np.float32(np.nan))
    stats = update(normalizer.init(data[0, 0]), polluted, mask)
    assert_moments(stats, data[mask], rtol=1e-5)


def test_a_batch_without_valid_rows_changes_nothing():
    stats = normalizer.init(jnp.float32(0))
    nothing = (jnp.full((4, 2), jnp.nan), jnp.zeros((4, 2), bool))
    jax.tree.map(np.testing.assert_array_equal, update(stats, *nothing), stats)
    stats = update(stats, jnp.arange(8.0).reshape(4, 2))
    jax.tree.map(np.testing.assert_array_equal, update(stats, *nothing), stats)


def test_normalize_whitens_and_clips():
    data = large_mean_data()
    stats = fold(data)
    whitened = np.asarray(normalize(stats, data))
    np.testing.assert_allclose(np.mean(whitened, (0, 1, 2), dtype=np.float64), 0, atol=2e-3)
    np.testing.assert_allclose(np.std(whitened, (0, 1, 2), dtype=np.float64), 1, rtol=1e-3)
    clipped = np.asarray(normalize(stats, data, clip=1.5))
    assert clipped.max() == 1.5
    assert clipped.min() == -1.5
    np.testing.assert_array_equal(clipped, np.clip(whitened, -1.5, 1.5))


def test_before_the_first_update_normalize_is_the_identity():
    x = jnp.array([[3.0, -40.0]])
    stats = normalizer.init(x[0])
    np.testing.assert_array_equal(normalizer.normalize(stats, x), x)
    np.testing.assert_array_equal(normalizer.normalize(stats, x, clip=10.0), [[3.0, -10.0]])


def test_a_constant_feature_normalizes_to_zero():
    data = np.full((100, 7, 1), 1e4 + 0.3, np.float32)
    stats = fold(np.stack([data] * 5))
    np.testing.assert_array_equal(normalize(stats, data), 0.0)


def test_only_float_leaves_have_statistics():
    obs = {
        "image": jnp.full((6, 4, 2, 2), 200, jnp.uint8),
        "joints": jnp.arange(24, dtype=jnp.bfloat16).reshape(6, 4),
        "alive": jnp.ones((6, 4), bool),
        "speed": jnp.arange(72, dtype=jnp.float32).reshape(6, 4, 3),
    }
    stats = update(normalizer.init(jax.tree.map(lambda x: x[0, 0], obs)), obs)
    assert [x.shape for x in stats.mean] == [(), (3,)]  # joints, speed
    result = normalize(stats, obs)
    for name in ("image", "alive"):
        np.testing.assert_array_equal(result[name], obs[name])
        assert result[name].dtype == obs[name].dtype
    for name in ("joints", "speed"):
        raw = np.asarray(obs[name], np.float64)
        np.testing.assert_allclose(result[name], (raw - raw.mean((0, 1))) / raw.std((0, 1)), atol=1e-5)
        assert result[name].dtype == jnp.float32


def test_a_tree_without_float_leaves_passes_through():
    image = jnp.full((6, 4, 2, 2), 200, jnp.uint8)
    stats = normalizer.update(normalizer.init(image[0, 0]), image)
    np.testing.assert_array_equal(normalizer.normalize(stats, image, clip=10.0), image)


def test_rewards_are_scaled_without_subtracting_the_mean():
    # correctness 14: subtracting a mean of rewards changes which policy is best.
    returns = jnp.array([[1.0, 3.0], [5.0, 7.0]])  # mean 4, variance 5
    stats = normalizer.update(normalizer.init(jnp.float32(0)), returns)
    reward = jnp.array([4.0, 0.0, -10.0])
    np.testing.assert_allclose(normalizer.scale_rewards(stats, reward), reward / np.sqrt(5), rtol=1e-6)
    np.testing.assert_allclose(normalizer.scale_rewards(stats, reward, clip=1.0), [1.0, 0.0, -1.0])


def test_rewards_keep_their_scale_before_the_first_update():
    np.testing.assert_array_equal(normalizer.scale_rewards(normalizer.init(jnp.float32(0)), jnp.ones(3)), 1.0)


def test_leading_dimensions_must_agree():
    stats = normalizer.init((jnp.zeros(3), jnp.zeros(2)))
    with pytest.raises(AssertionError):
        normalizer.update(stats, (jnp.zeros((4, 5, 3)), jnp.zeros((5, 4, 2))))
