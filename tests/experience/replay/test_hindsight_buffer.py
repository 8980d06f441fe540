"""Bad input of the buffer with hindsight for loops of one's own, and what its programs copy.

What it draws is in `test_hindsight.py`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.replay import HindsightReplayBuffer
from tests.experience.replay.test_hindsight import step_like, steps


def test_settings_that_are_refused() -> None:
    with pytest.raises(ValueError, match="`strategy` .='past'. must be one of future, final"):
        HindsightReplayBuffer(4, strategy="past")
    for k in (0, 1.5):
        with pytest.raises(ValueError, match=f"^`k` .={k}. must be a whole number, at least 1$"):
            HindsightReplayBuffer(4, k=k)  # type: ignore[arg-type]


def changed(**parts: Any) -> dict[str, Any]:
    return step_like() | parts


def without(*names: str) -> dict[str, Any]:
    return {name: x for name, x in step_like().items() if name not in names}


GOALS = step_like()["obs"]


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (without("done", "obs"), r"a step must have obs, done, obs\['achieved_goal'\], .*"),
        (changed(obs=np.zeros(3)), "`obs` must be a dict of .*, desired_goal, observation, not a ndarray"),
        (changed(next_obs={"observation": np.zeros(3)}), r"a step must have next_obs\['achieved_goal'\], .*"),
        (np.zeros(3), "a step must be a dict of obs, .*, not a ndarray"),
        (changed(obs=GOALS | {"desired_goal": np.zeros(2)}), r"goals must have one shape, not \[1\] of .*"),
        (changed(done=np.float32(0.0)), r"`done` must be a bool, not float32\[\]"),
        (changed(terminated=np.zeros(1, bool)), r"`terminated` must be a bool, not bool\[1\]"),
        (changed(reward=np.int32(0)), r"`reward` must be a float32, not int32\[\]"),
    ],
)
def test_steps_that_are_refused(example: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        HindsightReplayBuffer(4).init(example)


def test_batches_that_are_refused() -> None:
    buffer = HindsightReplayBuffer(4)
    state, batch = buffer.init(step_like()), steps(np.arange(3), [2])
    with pytest.raises(ValueError, match=r"^a batch must have `\['done'\]`, as the buffer has$"):
        buffer.add(state, {name: x for name, x in batch.items() if name != "done"})
    with pytest.raises(
        ValueError, match=r"^`batch\['done'\]` is float32; it must be bool, as in the buffer$"
    ):
        buffer.add(state, batch | {"done": np.zeros(3, np.float32)})


@pytest.mark.slow
def test_errors_that_are_not_finite_are_one_outside_of_a_compiled_program() -> None:
    buffer = HindsightReplayBuffer(4)
    state = jax.jit(buffer.add)(buffer.init(step_like()), steps(np.arange(3), [2]))
    index, errors = jnp.arange(2), jnp.array([jnp.nan, 3.0])
    with pytest.raises(ValueError, match="`errors` must be finite"):
        buffer.update_priorities(state, index, errors)
    state = jax.jit(buffer.update_priorities)(state, index, errors)
    expected = [1.0, (3 + 1e-5) ** 0.6, 1.0, 0.0]
    np.testing.assert_allclose(state.buffer.tree.leaf[0, :4], expected, rtol=1e-6)


@pytest.mark.slow
def test_states_can_be_donated() -> None:
    buffer = HindsightReplayBuffer(4)
    state = jax.jit(buffer.add, donate_argnums=0)(buffer.init(step_like()), steps(np.arange(3), [2]))
    state, *_ = jax.jit(buffer.sample, donate_argnums=0, static_argnums=2)(state, jax.random.key(0), 2)
    state = jax.jit(buffer.update_priorities, donate_argnums=0)(state, jnp.arange(2), jnp.ones(2))
    assert (int(state.count), int(state.number), bool(state.at_start)) == (3, 1, True)


CAPACITY = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("method", ["add", "future", "random"])
def test_a_donated_state_is_not_copied(method: str) -> None:
    buffer = HindsightReplayBuffer(CAPACITY, strategy="future" if method == "add" else method)
    state = jax.eval_shape(buffer.init, step_like())
    if method == "add":
        program = jax.jit(buffer.add, donate_argnums=0).lower(state, steps(np.arange(32), [7]))
    else:
        program = jax.jit(buffer.sample, donate_argnums=0, static_argnums=2).lower(
            state, jax.random.key(0), 32
        )
    found = program.compile().memory_analysis()
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert found.alias_size_in_bytes >= size
    assert found.temp_size_in_bytes < CAPACITY  # an array of bytes for each step would be more
