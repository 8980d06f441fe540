"""Members of a population with large memories: each is its own run, and copies no other one."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxrl.parallel.sharding import Topology
from jaxrl.population.placement import Placement
from jaxrl.population.programs import Programs, TrainingProgram
from jaxrl.programs.iteration import Iteration
from tests.algorithms.test_conformance import poisoned
from tests.algorithms.test_replay import MEBIBYTE, abstract_runtime
from tests.algorithms.tiny import assert_close, assert_equal, counted, first_state, iteration_of, tiny_config

pytestmark = pytest.mark.slow

WAYS = ("in turn", "together")
# Iterations that each member is to make; the last one meets a NaN in its first.
COUNTS = (3, 1, 0, 3)


@functools.cache
def program(algorithm: str) -> Iteration:
    return iteration_of(tiny_config(algorithm))


def advanced(iteration: Iteration, states: list[Any], way: str) -> dict[int, Any]:
    """(state, interval, failed) of members after `COUNTS` iterations; all but the last state are kept."""
    members = range(len(COUNTS))
    empty = iteration.learning.empty_interval()
    if way == "in turn":
        training = TrainingProgram(iteration, Placement(len(COUNTS), Topology.of(1)))
        training.compile()
        given = [
            (jax.tree.map(jnp.copy, x), empty, jnp.int32(n)) for x, n in zip(states, COUNTS, strict=True)
        ]
        return training.advance(dict(enumerate(given)))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    intervals = jax.tree.map(lambda x: jnp.stack([x] * len(COUNTS)), empty)
    together = jax.jit(iteration.repeat_together)(stacked, intervals, jnp.int32(COUNTS))
    return {i: jax.tree.map(lambda x: x[i], together) for i in members}  # noqa: B023


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("uniform_dqn", marks=pytest.mark.long)])
def test_members_are_single_runs(algorithm: str, way: str) -> None:
    iteration = program(algorithm)
    states = [first_state(iteration, seed) for seed in range(len(COUNTS))]
    states[-1] = poisoned(states[-1], "reward", math.nan)
    empty = iteration.learning.empty_interval()
    single = jax.jit(iteration.repeat)
    alone = [single(state, empty, jnp.int32(n)) for state, n in zip(states, COUNTS, strict=True)]
    together = advanced(iteration, states, way)
    assert [bool(together[i][2]) for i in range(len(COUNTS))] == [False, False, False, True]
    for i, (state, interval, _) in enumerate(alone):
        member, metrics, _ = together[i]
        # Also a member that was done before the others, or never began.
        same: Any = assert_equal if way == "in turn" else functools.partial(assert_close, atol=1e-4)
        same(counted(member), counted(state))
        same(metrics, interval)
        if COUNTS[i] < 3:
            # Rows beyond its cursor are written again before anything is drawn.
            after, expected = (single(x, empty, jnp.int32(1))[0] for x in (member, state))
            same(after.learner.policy.params, expected.learner.policy.params)
            if algorithm == "uniform_dqn":
                kept = int(expected.memory.count)
                rows = [jax.tree.map(lambda r: r[:kept], s.memory.rows) for s in (after, expected)]  # noqa: B023
                same(*rows)


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
    training = TrainingProgram(iteration, Placement(2, Topology.of(1)))
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
