"""`check_env` on environments of the host: sound ones pass, and each problem is one line."""

from __future__ import annotations

import re

import numpy as np
import pytest

import jaxrl
from tests.envs import host_environments as host

HOST = "gymnasium:tests.envs.host_environments"


def test_sound_environments_on_the_host_pass():
    for env in (host.Pusher(low=0, high=9), host.Rich(), host.Whole(), f"{HOST}:Masked(given='method')"):
        jaxrl.check_env(env)


class Failing(host.Pusher):
    def step(self, action):
        raise ValueError("the motor\nis on fire")


class Sure(host.Pusher):
    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, "no", truncated, info


class Unsure(host.Pusher):
    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, np.nan, truncated, info


class Paid(host.Pusher):
    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, "1", terminated, truncated, info


class Spaceless(host.Pusher):
    @property
    def observation_space(self):
        return None

    @observation_space.setter
    def observation_space(self, space):
        pass


class Changing(host.Pusher):
    def step(self, action):
        return np.full(2, np.nan), *super().step(action)[1:]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Failing, "Failing raised ValueError: the motor is on fire (test_host_checks.py, line"),
        (Changing, "Changing returned an observation with NaN or infinity in it"),
        (Sure, "Sure returned 'no' as terminated, which is no bool"),
        (Unsure, "Unsure returned nan as terminated, which is no bool"),
        (Paid, "Paid returned the reward '1', which is no number"),
        (Spaceless, "Spaceless has None in place of a space of gymnasium"),
        (host.Texts, "Texts has a space that is not supported: Text(1, 5"),
        (host.Batch, "Batch is not a JaxEnv; it is a VectorEnv, a batch of environments: name the class"),
        (lambda: host.Count, "Count is a class: check an environment of it, Count(...)"),
        pytest.param(
            lambda: f"{HOST}:Masked(fault='shape')",
            "gave int8[3] as info['action_mask']",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_problems_of_environments_on_the_host_are_one_line(make, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        jaxrl.check_env(make())
    assert "\n" not in str(caught.value)
