"""Groups of environments served side by side."""

import threading

import pytest

from jaxrl.rollout.watch import by_group


def test_groups_work_at_the_same_time_and_answer_in_order():
    barrier = threading.Barrier(3, timeout=10)

    def work(group, failed):
        barrier.wait()  # passes only if all are there
        assert not failed()
        return group * 10

    assert by_group(work, 3) == [0, 10, 20]


@pytest.mark.parametrize("culprit", [0, 2])
def test_the_first_failure_is_raised_when_all_have_ended(culprit):
    ended = []

    def work(group, failed):
        if group == culprit:
            raise ValueError(f"group {group}")
        while not failed():
            pass
        ended.append(group)
        raise RuntimeError("because of the other")

    with pytest.raises(ValueError, match=f"group {culprit}"):
        by_group(work, 3)
    assert sorted(ended) == [g for g in range(3) if g != culprit]
