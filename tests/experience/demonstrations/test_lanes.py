"""The order of episodes in lanes."""

from __future__ import annotations

import numpy as np

from jaxrl.experience.demonstrations.demonstrations import assign, lay_out, rows_needed
from tests.experience.demonstrations.samples import SPEC, episode


def test_the_longest_first_into_the_emptiest_lane() -> None:
    assert assign([3, 5, 4, 1], 2) == [[1, 3], [2, 0]]
    assert rows_needed([3, 5, 4, 1], 2) == 7
    assert rows_needed([], 2) == 0


def test_every_step_lies_once_in_its_order_and_padding_does_not_count() -> None:
    found = lay_out([episode(3, 1), episode(5, 2), episode(4, 3), episode(1, 4)], SPEC, lanes=2, rows=8)
    assert found.valid.sum(axis=0).tolist() == [6, 7]
    # Seeds of the episodes and the steps in them, in thousandths.
    np.testing.assert_array_equal(np.round(found.obs[:, 0, 1] * 1000), [2, 2, 2, 2, 2, 4, 0, 0])
    np.testing.assert_array_equal(np.round(found.obs[:, 0, 0] * 1000), [0, 1, 2, 3, 4, 0, 0, 0])
    np.testing.assert_array_equal(np.round(found.obs[:, 1, 1] * 1000), [3, 3, 3, 3, 1, 1, 1, 0])
    # A reset where an episode begins, and where padding does.
    np.testing.assert_array_equal(np.flatnonzero(found.reset[:, 0]), [0, 5, 6])
    np.testing.assert_array_equal(np.flatnonzero(found.reset[:, 1]), [0, 4, 7])
    np.testing.assert_array_equal(found.action[:5, 0], [0, 1, 2, 0, 1])
    assert found.action_mask is None
