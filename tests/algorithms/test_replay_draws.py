"""The distribution of a memory's draws by priority, through the code that GPUs run."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.replay import Replay
from tests.experience.replay.test_formulas import chi_squared
from tests.experience.replay.test_replay_memory import RACE, drawable, filled, flat, history, rollouts

COUNT = 8_000  # draws


@pytest.mark.slow
def test_transitions_are_drawn_in_proportion_to_their_priorities() -> None:
    plan, found = RACE, rollouts(4)
    # More than it holds, and errors that differ by orders of magnitude.
    memory, state = Replay(plan), filled(Replay(plan), found)
    errors = jnp.float32(10.0) ** jnp.linspace(-2, 1, plan.batch_size)
    draw, feedback = jax.jit(memory.draw), jax.jit(memory.feedback)
    for i in range(6):
        drawn = draw(state, found[-1], jax.random.key(i))
        state = feedback(state, drawn.feedback(jnp.roll(errors, i)))
    # One of each group: of more, none is drawn twice, and the first would change the others' probabilities.
    single = Replay(dataclasses.replace(plan, batch_size=plan.groups))
    keys = jax.random.split(jax.random.key(1), COUNT)
    names_drawn = np.asarray(jax.jit(jax.vmap(lambda key: single.draw(state, found[-1], key).action))(keys))
    leaf = {int(name): float(x) for name, x in zip(*flat(state), strict=True)}
    allowed = sorted(drawable(history(found)))
    assert set(np.unique(names_drawn)) <= set(allowed)
    for group in range(plan.groups):
        # A name is 100 times the row, plus the environment; two neighbouring environments are a group.
        names = [name for name in allowed if name % 100 // 2 == group]
        weights = np.array([leaf[name] for name in names])
        assert weights.max() > 5 * weights.min()
        seen = np.array([(names_drawn[:, group] == name).sum() for name in names])
        assert seen.sum() == COUNT
        statistic, degrees = chi_squared(seen, COUNT * weights / weights.sum())
        assert statistic < degrees + 4 * (2 * degrees) ** 0.5
