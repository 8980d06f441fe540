"""Staggered first episodes where the time limit is at the end of what an int32 holds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.vector import VectorEnv
from jaxrl.programs.host_start import start_numbers
from tests.compiled_programs import Noise


@pytest.mark.parametrize("limit", [2**31 - 1, 2**31, 10**12])
def test_staggered_first_episodes(limit: int) -> None:
    keys = jax.random.split(jax.random.key(0), 8)
    reset = jax.jit(VectorEnv(Noise(max_episode_steps=limit), stagger=True).reset)
    on_device = reset(keys)[0].first_episode_left
    spec = EnvSpec("test:Env", Box.of(0, 1, (1,)), Discrete(2), max_episode_steps=limit)
    _, on_host = start_numbers(spec, jax.random.key(0), jnp.int32(0), jnp.arange(8))
    for steps in (on_device, on_host):
        assert (steps >= 1).all()
        assert steps.max() > 2**29
