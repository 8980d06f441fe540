"""Worker processes end: when one hangs or is killed, with their parent, and once closed or forgotten."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.host_env import HostEnvError, HostOptions
from tests.envs.test_gymnasium import MODULE, alive, play


def play_on(env):
    while True:
        env.send(0, np.zeros(4, int))
        env.recv(0)


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.slow
def test_hanging_environment_is_named_and_ended(start):
    env = start(f"{MODULE}:Faulty(fault='hang')", num_groups=2, num_workers=4, timeout=0.5)
    pids = env.process_ids
    begin = time.monotonic()
    with pytest.raises(HostEnvError, match="environment 3, step 5: did not answer within 0.5 s"):
        play(env, np.zeros((6, 4), int))
    assert time.monotonic() - begin < 30
    assert not any(map(alive, pids))


def test_killed_worker_is_noticed_at_once(start):
    env = start(f"{MODULE}:Count", num_workers=2, timeout=1000.0)
    play(env, np.zeros((2, 4), int))
    os.kill(env.process_ids[1], signal.SIGKILL)
    begin = time.monotonic()
    message = "environments 2 to 3, after step 2: its worker process was killed by signal 9"
    with pytest.raises(HostEnvError, match=message):
        play_on(env)
    assert time.monotonic() - begin < 10


@pytest.mark.slow
def test_interrupt_ends_a_wait_in_another_thread(start):
    env = start(f"{MODULE}:HangInC", timeout=1000.0)
    env.recv(0)
    env.send(0, np.zeros(4, int))
    timer = threading.Timer(0.2, env.interrupt)
    timer.start()
    with pytest.raises(HostEnvError, match="killed by signal 9"):
        env.recv(0)
    timer.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Count", "HangInC"])
def test_workers_end_with_a_parent_that_is_killed(name):
    # Also where an environment hangs in C code and no Python of the worker runs any more.
    script = f"""
import time, numpy as np
from jaxrl import envs
from jaxrl.envs.host_env import HostOptions
env = envs.make_host("{MODULE}:{name}").start(HostOptions(seeds=(1, 2), num_workers=2))
env.recv(0)
env.send(0, np.zeros(2, int))
print(*env.process_ids, flush=True)
time.sleep(1000)
"""
    before = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.2)
        assert all(map(alive, pids))
        parent.kill()
    assert wait_until(lambda: not any(map(alive, pids)))
    assert set(os.listdir("/dev/shm")) <= before


@pytest.fixture
def collect():
    """Collects garbage, and not again what other tests have left, which takes a second or more."""
    gc.collect()
    gc.freeze()
    yield gc.collect
    gc.unfreeze()


@pytest.mark.slow
def test_closing_leaves_nothing(collect):
    def open_files():
        names = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the folder's own, or closed by another thread
                names.add(os.readlink(f"/proc/self/fd/{number}"))
        return names

    factory = envs.make_host(f"{MODULE}:Count")
    before, shared = open_files(), set(os.listdir("/dev/shm"))
    env = factory.start(HostOptions(seeds=(1, 2, 3, 4), num_groups=2, num_workers=2))
    play(env, np.zeros((2, 4), int))
    pids = env.process_ids
    assert set(os.listdir("/dev/shm")) <= shared  # the memory has no name at any time
    env.close()
    env.close()
    assert not any(map(alive, pids))
    with pytest.raises(ChildProcessError):  # none is left to be waited for: no zombies
        os.waitpid(pids[0], os.WNOHANG)
    del env  # its arrays are the last to hold the memory
    collect()
    assert open_files() <= before  # what other tests had left open may be closed by now


@pytest.mark.slow
def test_forgotten_environments_end_with_the_last_reference(collect):
    env = envs.make_host(f"{MODULE}:Count").start(HostOptions(seeds=(1, 2)))
    pids = env.process_ids
    del env
    collect()
    assert not any(map(alive, pids))
