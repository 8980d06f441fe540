"""Groups of environments served side by side."""

import threading

import numpy as np
import pytest

from jaxrl.envs import registry
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.experience.host.threads import Watch, by_group


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


@pytest.mark.slow
def test_a_group_that_has_failed_is_not_overdue():
    name = "gymnasium:tests.envs.host_environments:Faulty(fault='raise')"
    env = registry.make_host(name).start(HostOptions(tuple(range(4)), num_groups=2, num_workers=2))
    env.timeout = 0.0  # whatever waits is overdue
    watch = Watch(env)

    def play():
        for _ in range(20):
            for group in range(2):
                watch.recv(group)
                env.send(group, np.zeros(2, int))

    with pytest.raises(HostEnvError, match="on fire"):
        play()
    assert watch.overdue() is None
    env.close()
