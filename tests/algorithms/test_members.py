"""Members of a population with large memories: each is its own run, and copies no other one."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.parallel.sharding import Topology
from jaxrl.population.programs import Placement, Programs, training_program
from jaxrl.programs.iteration import Iteration
from tests.algorithms.test_conformance import poisoned
from tests.algorithms.test_replay import MEBIBYTE, abstract_runtime
from tests.algorithms.tiny import assert_close, counted, first_state, iteration_of, tiny_config

pytestmark = pytest.mark.slow

# Iterations that each member is to make; the last one meets a NaN in its first.
COUNTS = (3, 1, 0, 3)


@functools.cache
def program(algorithm: str) -> Iteration:
    return iteration_of(tiny_config(algorithm))


# One after the other, as on a CPU: tests/population/test_run_population.py.
def test_members_together_are_single_runs() -> None:
    iteration = program("ppo")
    states = [first_state(iteration, seed) for seed in range(len(COUNTS))]
    states[-1] = poisoned(states[-1], "reward", math.nan)
    empty = iteration.learning.empty_interval()
    single = jax.jit(iteration.repeat)
    alone = [single(state, empty, jnp.int32(n)) for state, n in zip(states, COUNTS, strict=True)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    intervals = jax.tree.map(lambda x: jnp.stack([x] * len(COUNTS)), empty)
    together = jax.jit(iteration.repeat_together)(stacked, intervals, jnp.int32(COUNTS))
    np.testing.assert_array_equal(together[2], [False, False, False, True])
    for i, (state, interval, _) in enumerate(alone):
        member, metrics, _ = jax.tree.map(lambda x: x[i], together)  # noqa: B023
        # Also a member that was done before the others, or never began.
        assert_close(counted(member), counted(state), atol=1e-4)
        assert_close(metrics, interval, atol=1e-4)
        if COUNTS[i] < 3:
            after, expected = (single(x, empty, jnp.int32(1))[0] for x in (member, state))
            assert_close(after.learner.policy.params, expected.learner.policy.params, atol=1e-4)


def test_a_population_on_a_cpu_copies_no_memory() -> None:
    config = abstract_runtime(256).learning.per_device.config
    compiled = Programs(config, 2, Topology.of(1)).training.trace().lower().compile()
    analysis = compiled.memory_analysis()
    assert analysis.alias_size_in_bytes > 256 * MEBIBYTE
    assert analysis.temp_size_in_bytes < MEBIBYTE
    assert analysis.output_size_in_bytes - analysis.alias_size_in_bytes < MEBIBYTE


def test_a_memory_stays_where_it_is_from_one_call_to_the_next() -> None:
    # Beside the program itself, that members are handed to it and back.
    iteration = program("uniform_dqn")
    training = training_program(iteration, Placement(2, Topology.of(1)))
    training.compile()
    empty, states = iteration.learning.empty_interval(), [first_state(iteration, seed) for seed in (0, 1)]
    where = lambda state: state.memory.rows["obs"].unsafe_buffer_pointer()  # noqa: E731
    first = [where(state) for state in states]
    assert len(set(first)) == 2
    for members in ((0, 1), (1,), (0, 1)):
        after = training.advance({i: (states[i], empty, jnp.int32(2)) for i in members})
        states = [after[i][0] if i in after else states[i] for i in (0, 1)]
        assert [where(state) for state in states] == first
    assert [int(state.iteration) for state in states] == [4, 6]


# tests/algorithms/test_large_memories.py has the way of this machine.
@pytest.mark.long
def test_members_side_by_side_copy_no_memory() -> None:
    # The way of accelerators.
    runtime = abstract_runtime(256)
    axis = dataclasses.replace(runtime.iteration.learning.axis, name=None)
    iteration = Iteration.build(runtime.learning.per_device.config, runtime._env, runtime.agent, axis)
    hyperparams = iteration.learning.algorithm.hyperparameters(iteration.learning.config)
    state = jax.eval_shape(iteration.init, jax.random.key(0), hyperparams)
    one = (state, jax.eval_shape(iteration.learning.empty_interval), jax.ShapeDtypeStruct((), jnp.int32))
    two = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), one)
    analyses = [
        jax.jit(fn, donate_argnums=0).lower(*two).compile().memory_analysis()
        for fn in (iteration.repeat_together, jax.vmap(iteration.repeat))
    ]
    assert analyses[0].alias_size_in_bytes > 2 * 256 * MEBIBYTE
    assert analyses[0].temp_size_in_bytes < MEBIBYTE
    # What it is for: a batched loop selects over all that it carries.
    assert analyses[1].temp_size_in_bytes > 2 * 256 * MEBIBYTE
