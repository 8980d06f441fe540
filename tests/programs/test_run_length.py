"""Runs of any length share their programs; what follows the length is an argument."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import pytest

from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.programs.hyperparameters import with_numbers_of
from jaxrl.programs.sharded_learning import ShardedLearning
from jaxrl.training.run_state import RunState
from tests.compiled_programs import tiny_config

FIELDS: dict[str, dict[str, Any]] = {
    "ppo": {"ppo__schedule": "cosine", "ppo__entropy_schedule": "linear", "ppo__warmup_updates": 3},
    "dqn": {"dqn__schedule": "linear", "network__core": "none"},
    "pqn": {},
    "a2c": {},
    "r2d2": {},
    "sac": {"network__core": "none", "env__name": "gymnax:Pendulum-v1"},
}
FAST = ("ppo", "dqn")


def _runtime(algorithm: str, steps: int) -> DeviceRuntime:
    config = tiny_config(algorithm=algorithm, stop__steps=steps, **FIELDS[algorithm])
    return DeviceRuntime(config, Topology.of(1))


@pytest.mark.parametrize(
    "algorithm", [x if x in FAST else pytest.param(x, marks=pytest.mark.slow) for x in FIELDS]
)
def test_no_program_depends_on_the_length(algorithm):
    def first(learning: ShardedLearning) -> str:
        return learning._init.lower(*learning._start()).as_text()

    short, long = (_runtime(algorithm, steps) for steps in (4_000, 9_000))
    assert short.trace().lower().as_text() == long.trace().lower().as_text()
    assert first(short.learning) == first(long.learning)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "pqn"])
def test_schedules_follow_the_planned_updates_of_the_state(algorithm):
    short, long = (_runtime(algorithm, steps).learning for steps in (4_000, 9_000))
    learner, longer = (x.initial_state().learner for x in (short, long))
    made = jnp.int32(short.per_device.config.total_updates // 2)
    by_state = short.algorithm.scheduled_values(dataclasses.replace(longer, updates=made))
    by_config = long.algorithm.scheduled_values(dataclasses.replace(longer, updates=made, planned=None))
    assert by_state == by_config
    assert by_state != short.algorithm.scheduled_values(dataclasses.replace(learner, updates=made))


def test_a_stage_and_a_run_that_adopts_keep_their_own_length():
    short, long = (_runtime("ppo", steps).learning for steps in (4_000, 9_000))
    planned = jnp.float32(long.per_device.config.total_updates)
    state = with_numbers_of(long.per_device.config, long.topology, short.initial_state(), ())
    assert state.learner.planned == planned
    run = RunState(1, long)
    run.adopt(short.initial_state().learner)
    assert run.state.learner.planned == planned
