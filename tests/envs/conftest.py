"""Fixtures of tests of host environments."""

from __future__ import annotations

import pytest

from jaxrl import envs
from jaxrl.envs.host_env import HostOptions

TIMEOUT = 30.0


@pytest.fixture
def start():
    """Starts environments that end with the test."""
    started = []

    def start(name, num_envs=4, **options):
        # One process for each group: every further one imports what the first does.
        options = {"timeout": TIMEOUT, "num_workers": options.get("num_groups", 1)} | options
        env = envs.make_host(name).start(HostOptions(seeds=tuple(range(num_envs)), **options))
        started.append(env)
        return env

    yield start
    for env in started:
        env.close()
