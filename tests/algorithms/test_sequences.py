"""Chunks, the shuffle and the minibatches, on arrays whose values say where they come from."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.sequences import minibatch_environments, take_carries, take_sequences

T, B, M = 8, 6, 3


def labelled():
    """int32[T, B]: 100 t + b."""
    return 100 * jnp.arange(T)[:, None] + jnp.arange(B)[None]


@partial(jax.jit, static_argnums=(0, 1))
def epoch(length, num_minibatches, stored):
    """Labels int32[M, L, N] of each minibatch of an epoch, and carries [M, N, ...] taken from `stored`."""
    environment_MCG = minibatch_environments(
        jax.random.key(0), T // length, B, num_minibatches, 0, B // num_minibatches
    )
    take = lambda env_CG: (take_sequences(labelled(), env_CG, length), take_carries(stored, env_CG))  # noqa: E731
    return jax.vmap(take)(environment_MCG)


@pytest.mark.parametrize("length", [1, 4, 8])
def test_sequences_are_contiguous_in_time_and_of_one_environment(length):
    # correctness 3 and 4: reshaping [T, B] to [L, N] interleaves time (column 0 would hold 0, 2, 4, 6), and
    # shuffling steps inside a sequence feeds the core a past that never was.
    for labels_LN in np.asarray(epoch(length, M, {})[0]):
        time, environment = labels_LN // 100, labels_LN % 100
        assert (time[0] % length == 0).all()
        np.testing.assert_array_equal(time, time[0] + np.arange(length)[:, None])
        np.testing.assert_array_equal(environment, np.broadcast_to(environment[0], environment.shape))


@pytest.mark.parametrize(("length", "num_minibatches"), [(1, 2), (4, 1), (4, 6), (8, 2)])
def test_an_epoch_uses_every_step_once(length, num_minibatches):
    # correctness 3 and 4.
    labels, _ = epoch(length, num_minibatches, {})
    assert labels.shape == (num_minibatches, length, T * B // (length * num_minibatches))
    np.testing.assert_array_equal(np.sort(labels, axis=None), np.sort(labelled(), axis=None))


@pytest.mark.parametrize("length", [1, 4, 8])
def test_carries_belong_to_the_sequences(length):
    # correctness 2: a sequence starts from the carry of its own chunk and its own environment.
    label = 100 * length * jnp.arange(T // length)[:, None] + jnp.arange(B)[None]  # of a chunk's first step
    labels_MLN, carry_MN2 = epoch(length, M, {"h": jnp.stack([label, label], axis=-1)})
    np.testing.assert_array_equal(carry_MN2["h"], np.stack([labels_MLN[:, 0]] * 2, axis=-1))


def test_sequences_keep_dtypes_and_trailing_dimensions():
    tree = {"image": jnp.zeros((T, B, 2, 3), jnp.uint8), "done": jnp.zeros((T, B), bool)}
    environment_CG = jnp.zeros((2, 3), jnp.int32)
    taken = take_sequences(tree, environment_CG, 4)
    assert (taken["image"].shape, taken["image"].dtype) == ((4, 6, 2, 3), jnp.uint8)
    assert (taken["done"].shape, taken["done"].dtype) == ((4, 6), bool)


@pytest.mark.parametrize("num_devices", [2, 4])
def test_devices_form_the_minibatches_of_one_device(num_devices):
    # correctness 12: a minibatch of N devices is the union of what each takes from its own environments.
    num_envs, num_minibatches, chunks = 24, 3, 2
    groups = num_envs // num_minibatches
    key = jax.random.key(2)
    deal = jax.jit(minibatch_environments, static_argnums=(1, 2, 3, 5))
    whole = deal(key, chunks, num_envs, num_minibatches, 0, groups)
    share, own = groups // num_devices, num_envs // num_devices
    parts = [
        deal(key, chunks, num_envs, num_minibatches, d * share, share) + d * own for d in range(num_devices)
    ]
    np.testing.assert_array_equal(np.concatenate(parts, axis=2), whole)


def test_every_sequence_lands_in_every_minibatch_equally_often_and_independently():
    # correctness 4: what is shuffled are environments, anew for each chunk and epoch; otherwise the same
    # environments would share a minibatch for ever.
    keys = jax.random.split(jax.random.key(3), 3000)
    deal = jax.jit(jax.vmap(lambda key: minibatch_environments(key, 2, B, M, 0, B // M)))
    environment = np.asarray(deal(keys))  # [keys, M, C, G]
    for c in range(2):
        for b in range(B):
            counts = (environment[:, :, c] == b).any(axis=2).sum(axis=0)
            # 1000 each are expected; the standard deviation is 26.
            assert np.abs(counts - 1000).max() < 130
    start = environment[:, 0] % M  # [keys, C, G]: which member of its group the first minibatch got
    for other in (start[:, 1, 0], start[:, 0, 1]):  # another chunk, another group
        # 1/3 of the keys agree by chance; the standard deviation is 0.0086.
        assert abs((start[:, 0, 0] == other).mean() - 1 / 3) < 0.045
