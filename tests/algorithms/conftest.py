"""A trajectory, and the state after all updates on it."""

import jax
import jax.numpy as jnp
import pytest

from tests.compiled_programs import start, tiny_program


@pytest.fixture(scope="module")
def rolled():
    """(program, state, trajectory, totals) of a second rollout, which starts inside episodes."""
    program = tiny_program(ppo__sequence_length=4)
    rollout = jax.jit(program.rollout)
    state, _, _ = rollout(start(program))
    return program, *rollout(state.replace(iteration=jnp.int32(1)))


@pytest.fixture(scope="module")
def updated(rolled):
    """(state, metrics) after all updates on the trajectory."""
    program, state, trajectory, totals = rolled
    return jax.jit(program.update)(state, trajectory, totals)
