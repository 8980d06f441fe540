"""The memory of a window: which entries it holds after a sequence, and in which places."""

import jax
import numpy as np
import pytest

from jaxrl.networks.kernels.window_memory import ages, in_order, newest_of, remember

N = 2
BEFORE = [0.0, 1.0, 2.0]


def remembered(length, valid, memory=BEFORE):
    """(memory, valid) after entries 10, 11, ...; in the second row the last but one begins an episode."""
    memory = np.array([memory] * N, np.float32)[..., None]
    x = np.broadcast_to(10.0 + np.arange(length, dtype=np.float32)[:, None, None], (length, N, 1))
    reset = np.zeros((length, N), bool)
    reset[max(length - 2, 0), 1] = True
    return jax.jit(remember)(memory, np.array([valid] * N, np.float32), x, reset)


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_the_memory_holds_the_last_entries_of_this_episode(length):
    # Two entries were there, of three that fit, stored from the oldest to the newest.
    after, held = map(np.asarray, jax.jit(in_order)(*remembered(length, [0.0, 1.0, 1.0])))
    everything = [*BEFORE, *(10.0 + t for t in range(length))]
    np.testing.assert_array_equal(after[0, :, 0], everything[-3:])
    np.testing.assert_array_equal(held[0], [x > 0 for x in everything[-3:]])
    begun = everything[-min(length, 2) :]
    np.testing.assert_array_equal(after[1, :, 0], [0.0] * (3 - len(begun)) + begun)
    np.testing.assert_array_equal(held[1], [False] * (3 - len(begun)) + [True] * len(begun))


def test_a_step_writes_over_the_oldest_entry_and_moves_none():
    # The newest, 1, is in the middle: the oldest is the one after it.
    memory, valid = map(np.asarray, remembered(1, [1.0, 2.0, 1.0]))
    np.testing.assert_array_equal(memory[:, :, 0], [[0.0, 1.0, 10.0], [10.0, 0.0, 0.0]])
    np.testing.assert_array_equal(valid, [[1.0, 1.0, 2.0], [2.0, 0.0, 0.0]])
    np.testing.assert_array_equal(ages(valid), [[2, 1, 0], [0, 2, 1]])


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_sequence_leaves_every_entry_where_single_steps_leave_it(length):
    steps = np.array([BEFORE] * N, np.float32)[..., None], np.array([[1.0, 2.0, 1.0]] * N, np.float32)
    sequence = jax.jit(remember)(*steps, *_entries(length))
    for x, reset in zip(*_entries(length), strict=True):
        steps = jax.jit(remember)(*steps, x[None], reset[None])
    np.testing.assert_array_equal(sequence[1], steps[1])
    np.testing.assert_array_equal(sequence[0], steps[0])


def _entries(length):
    rng = np.random.default_rng(length)
    return rng.normal(size=(length, N, 1)).astype(np.float32), rng.random((length, N)) < 0.3


@pytest.mark.parametrize(
    ("valid", "newest"),
    [
        ([0.0, 0.0, 0.0], 2),  # an empty memory begins with the first place
        ([0.0, 1.0, 1.0], 2),
        ([1.0, 2.0, 1.0], 1),
        ([3.0, 2.0, 2.0], 0),  # no carry that anything here leaves; exactly one all the same
        ([1.0, np.nan, 2.0], 2),
    ],
)
def test_exactly_one_place_is_the_newest(valid, newest):
    assert int(newest_of(np.array([valid], np.float32))[0]) == newest
