"""DQN with hindsight: the whole program on BitFlip, and what it asks of the memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import Config, ConfigError
from jaxrl.envs.goals import NearGoals
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.runs.checkpoint import state_arrays
from jaxrl.types import TrainState
from tests.algorithms.test_dqn import algorithm_of
from tests.algorithms.tiny import assert_equal, tiny_config

BIT_FLIP = "jaxrl:BitFlip(bits=3)"


def config_of(**fields: Any) -> Config:
    given = {"env__name": BIT_FLIP, "network__encoder": "joint", "learner__hindsight": "future"}
    return tiny_config("dqn", **given, **fields)


def test_memory_is_that_of_the_section() -> None:
    plan = algorithm_of(config_of(learner__hindsight_k=2)).memory.hindsight
    assert plan is not None
    assert (plan.strategy, plan.k, plan.goals) == ("future", 2, NearGoals())
    assert algorithm_of(tiny_config("dqn")).memory.hindsight is None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "hindsight",
            "past",
            "`dqn.hindsight` .='past'. must be one of none, future, final, episode, random",
        ),
        ("hindsight_k", 0, "`dqn.hindsight_k` .=0. must be at least 1"),
    ],
)
def test_bad_fields(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        tiny_config("dqn", **{f"learner__{field}": value})
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_learns_and_goes_on_bitwise_from_stored_arrays() -> None:
    runtime = DeviceRuntime(config_of(), Topology.of(1))
    runtime.compile()

    def advanced(state: TrainState, count: int) -> TrainState:
        given = jax.tree.map(jnp.copy, state)
        after, _, failed = runtime.advance(given, runtime.learning.empty_interval(), count)
        assert not failed
        return after

    start = runtime.learning.initial_state()
    half = advanced(start, 2)
    numbers = np.asarray(half.memory.rows["episode"])
    # Every episode of three bits has three steps at most, and a final observation.
    assert (numbers[-1] >= len(numbers) // 4).all()
    assert set(np.unique(np.diff(numbers, axis=0))) == {0, 1}
    stored = {name: np.array(x) for name, x in state_arrays.flat(state_arrays.to_arrays(half)).items()}
    abstract = state_arrays.fields(runtime.learning.abstract_state())
    restored = TrainState(**{name: state_arrays.rebuild(name, x, stored) for name, x in abstract.items()})
    assert_equal(advanced(restored, 2), advanced(start, 4))
