"""Chunks, the shuffle and the minibatches, on arrays whose values say where they come from."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.sequences import Dealing, Sequences, put_sequences, take_carries, take_sequences

T, B, M = 8, 6, 3
# (length, environments of a group, chunks of a group), with T / length a multiple of the last.
OVER_TIME = [(1, 2, 2), (2, 1, 4), (4, 6, 2)]


def labelled():
    """int32[T, B]: 100 t + b."""
    return (100 * np.arange(T)[:, None] + np.arange(B)[None]).astype(np.int32)


@partial(jax.jit, static_argnums=(0, 1, 2))
def dealt(length, group_envs, group_chunks, seed=0):
    """The sequences of an epoch of this device alone."""
    dealing = Dealing(T // length, B, group_envs, group_chunks)
    return dealing.deal(jax.random.key(seed), 0, B // group_envs)


@partial(jax.jit, static_argnums=(0, 1))
def epoch(length, num_minibatches, stored):
    """Labels int32[M, L, N] of each minibatch of an epoch, and carries [M, N, ...] taken from `stored`."""
    sequences = dealt(length, num_minibatches, 1)
    take = lambda s: (take_sequences(jnp.asarray(labelled()), s, length), take_carries(stored, s))  # noqa: E731
    return jax.vmap(take)(sequences)


def assert_contiguous(labels_MLN, length):
    for labels_LN in np.asarray(labels_MLN):
        time, environment = labels_LN // 100, labels_LN % 100
        assert (time[0] % length == 0).all()
        np.testing.assert_array_equal(time, time[0] + np.arange(length)[:, None])
        np.testing.assert_array_equal(environment, np.broadcast_to(environment[0], environment.shape))


@pytest.mark.parametrize("length", [4, 8])
def test_sequences_are_contiguous_in_time_and_of_one_environment(length):
    # correctness 3 and 4: reshaping [T, B] to [L, N] interleaves time (column 0 would hold 0, 2, 4, 6), and
    # shuffling steps inside a sequence feeds the core a past that never was.
    assert_contiguous(epoch(length, M, {})[0], length)


@pytest.mark.parametrize(("length", "num_minibatches"), [(1, 2), (4, 6)])
def test_an_epoch_uses_every_step_once(length, num_minibatches):
    # correctness 3 and 4.
    labels, _ = epoch(length, num_minibatches, {})
    assert labels.shape == (num_minibatches, length, T * B // (length * num_minibatches))
    np.testing.assert_array_equal(np.sort(labels, axis=None), np.sort(labelled(), axis=None))


@pytest.mark.parametrize("length", [1, 8])
def test_carries_belong_to_the_sequences(length):
    # correctness 2: a sequence starts from the carry of its own chunk and its own environment.
    label = 100 * length * np.arange(T // length)[:, None] + np.arange(B)[None]  # of a chunk's first step
    labels_MLN, carry_MN2 = epoch(length, M, {"h": np.stack([label, label], axis=-1)})
    np.testing.assert_array_equal(carry_MN2["h"], np.stack([labels_MLN[:, 0]] * 2, axis=-1))


@pytest.mark.slow
@pytest.mark.parametrize(("length", "group_envs", "group_chunks"), OVER_TIME)
def test_minibatches_over_time_use_every_sequence_once_with_its_carry(length, group_envs, group_chunks):
    # correctness 2, 3 and 4, where minibatches outnumber the environments of a group.
    members = group_envs * group_chunks
    label = jnp.asarray(100 * length * np.arange(T // length)[:, None] + np.arange(B)[None])
    for seed in range(3):
        sequences = dealt(length, group_envs, group_chunks, seed)
        take = lambda s: (take_sequences(jnp.asarray(labelled()), s, length), take_carries(label, s))  # noqa: E731
        labels_MLN, carry_MN = jax.vmap(take)(sequences)
        assert labels_MLN.shape == (members, length, T * B // (length * members))
        np.testing.assert_array_equal(np.sort(labels_MLN, axis=None), np.sort(labelled(), axis=None))
        assert_contiguous(labels_MLN, length)
        np.testing.assert_array_equal(carry_MN, labels_MLN[:, 0])


def test_sequences_keep_dtypes_and_trailing_dimensions():
    tree = {"image": jnp.zeros((T, B, 2, 3), jnp.uint8), "done": jnp.zeros((T, B), bool)}
    taken = jax.eval_shape(lambda: take_sequences(tree, Sequences(jnp.zeros((2, 3), jnp.int32)), 4))
    assert (taken["image"].shape, taken["image"].dtype) == ((4, 6, 2, 3), jnp.uint8)
    assert (taken["done"].shape, taken["done"].dtype) == ((4, 6), bool)


@pytest.mark.parametrize(
    ("length", "group_envs", "group_chunks"),
    [(8, 2, 1), (2, 1, 4), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((1, 2, 2), (4, 6, 2)))],
)
def test_rows_put_back_are_where_they_were_taken(length, group_envs, group_chunks):
    rows = np.stack([labelled(), -labelled()], axis=-1).astype(np.float32)

    @jax.jit
    def there_and_back():
        sequences = dealt(length, group_envs, group_chunks)
        taken = jax.vmap(lambda s: take_sequences(jnp.asarray(rows), s, length))(sequences)
        return put_sequences(taken, sequences, length, B)

    back = there_and_back()
    assert back.dtype == rows.dtype
    np.testing.assert_array_equal(back, rows)


@pytest.mark.parametrize(
    ("group_envs", "group_chunks"),
    [(3, 2), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((3, 1), (1, 4)))],
)
def test_devices_form_the_minibatches_of_one_device(group_envs, group_chunks):
    # correctness 12: a minibatch of N devices is the union of what each takes from its own environments.
    num_devices, num_envs, chunks = 4, 24, 4
    groups, key = num_envs // group_envs, jax.random.key(2)
    dealing = Dealing(chunks, num_envs, group_envs, group_chunks)
    deal = jax.jit(dealing.deal, static_argnums=2)
    whole = deal(key, 0, groups)
    share, own = groups // num_devices, num_envs // num_devices
    parts = [deal(key, d * share, share) for d in range(num_devices)]
    environment = [part.environment + d * own for d, part in enumerate(parts)]
    np.testing.assert_array_equal(np.concatenate(environment, axis=2), whole.environment)
    assert [part.chunk is None for part in parts] == [group_chunks == 1] * num_devices
    if group_chunks > 1:
        np.testing.assert_array_equal(np.concatenate([part.chunk for part in parts], axis=2), whole.chunk)


def test_every_sequence_lands_in_every_minibatch_equally_often_and_independently():
    # correctness 4: what is shuffled are environments, anew for each chunk and epoch; otherwise the same
    # environments would share a minibatch for ever.
    keys = jax.random.split(jax.random.key(3), 3000)
    deal = jax.jit(jax.vmap(lambda key: Dealing(2, B, M).deal(key, 0, B // M)))
    environment = np.asarray(deal(keys).environment)  # [keys, M, C, G]
    for c in range(2):
        for b in range(B):
            counts = (environment[:, :, c] == b).any(axis=2).sum(axis=0)
            # 1000 each are expected; the standard deviation is 26.
            assert np.abs(counts - 1000).max() < 130
    start = environment[:, 0] % M  # [keys, C, G]: which member of its group the first minibatch got
    for other in (start[:, 1, 0], start[:, 0, 1]):  # another chunk, another group
        # 1/3 of the keys agree by chance; the standard deviation is 0.0086.
        assert abs((start[:, 0, 0] == other).mean() - 1 / 3) < 0.045


def test_over_time_too_every_sequence_lands_in_every_minibatch_equally_often_and_independently():
    # correctness 4: groups of 2 chunks times 2 environments, four chunks of six environments.
    chunks, group_envs, group_chunks = 4, 2, 2
    members = group_envs * group_chunks
    keys = jax.random.split(jax.random.key(4), 3000)
    dealing = Dealing(chunks, B, group_envs, group_chunks)
    sequences = jax.jit(jax.vmap(lambda key: dealing.deal(key, 0, B // group_envs)))(keys)
    environment, chunk = np.asarray(sequences.environment), np.asarray(sequences.chunk)  # [keys, M, C, G]
    for c in range(chunks):
        for b in range(B):
            counts = ((environment == b) & (chunk == c)).any(axis=(2, 3)).sum(axis=0)
            # 750 each are expected; the standard deviation is 24.
            assert counts.sum() == 3000
            assert np.abs(counts - 750).max() < 120
    # [keys, C, G]: which member of its group the first minibatch got.
    start = chunk[:, 0] % group_chunks * group_envs + environment[:, 0] % group_envs
    assert set(np.unique(start)) == set(range(members))
    for other in (start[:, 1, 0], start[:, 0, 1]):  # other chunks, another group
        # 1/4 of the keys agree by chance; the standard deviation is 0.0079.
        assert abs((start[:, 0, 0] == other).mean() - 1 / 4) < 0.04
