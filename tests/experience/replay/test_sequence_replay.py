"""The replay memory of sequences beside a plain loop over everything that was ever collected."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.replay import ReplayPlan, SequenceBatch, SequencePlan
from jaxrl.experience.memory import build
from jaxrl.experience.replay import Ring
from jaxrl.types import Axis, Trajectory
from tests.experience.replay.test_replay_memory import ENVS, LENGTH, N_STEP, history
from tests.experience.replay.test_replay_memory import PLAN as PLAIN
from tests.experience.replay.test_replay_memory import rollouts as plain_rollouts

INTERVAL, BURN_IN, LEARNT = LENGTH, 2, 7
WINDOW = BURN_IN + LEARNT + N_STEP
PLAN = dataclasses.replace(
    PLAIN, rows=4 * LENGTH, batch_size=8, sequences=SequencePlan(BURN_IN, LEARNT, INTERVAL)
)
UNIFORM = dataclasses.replace(PLAN, priorities=None)


@functools.cache
def rollouts(count: int) -> list[Trajectory]:
    """With carries that say where they are from: 100 times the row, and the environment."""
    return [
        dataclasses.replace(each, carry=jnp.asarray(100.0 * LENGTH * i + np.arange(ENVS))[None, :, None])
        for i, each in enumerate(plain_rollouts(count))
    ]


@functools.cache
def compiled(plan: ReplayPlan) -> tuple[Any, Any, Any]:
    """(memory, add, draw)."""
    memory = build(plan)
    return memory, jax.jit(memory.add), jax.jit(memory.draw)


def filled(plan: ReplayPlan, found: list[Trajectory]) -> Ring:
    memory, add, _ = compiled(plan)
    state = memory.init(found[0])
    for each in found:
        state = add(state, each)
    return state


def steps_of(rows: dict[str, np.ndarray], t: int, b: int) -> tuple[list[float], bool]:
    """(rewards, whether it ended by a termination) of the return from row t of environment b on."""
    rewards: list[float] = []
    for k in range(t, t + N_STEP):
        lost = rows["reset"][k + 1, b] and not rows["terminated"][k, b]
        if not rows["valid"][k, b] or lost:
            break
        rewards.append(float(rows["reward"][k, b]))
        if rows["terminated"][k, b]:
            return rewards, True
    return rewards, False


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, UNIFORM])
@pytest.mark.parametrize("added", [2, 3, 4, 9])
def test_every_sequence_is_one_of_a_loop(plan: ReplayPlan, added: int) -> None:
    found = rollouts(added)
    state, rows, draw = filled(plan, found), history(found), compiled(plan)[2]
    total, seen = LENGTH * added, set()
    first = max(0, total - PLAN.rows)
    expected = {(t, b) for t in range(first, total - WINDOW + 1, INTERVAL) for b in range(ENVS)}
    for i in range(20):
        drawn: SequenceBatch = jax.device_get(draw(state, found[-1], jax.random.key(i)))
        there = np.flatnonzero(drawn.usable.any(axis=0))
        assert len({(int(drawn.row[n]), int(drawn.env[n])) for n in there}) == len(there)
        for n in there:
            t, b = int(drawn.carry[n, 0]) // 100, int(drawn.carry[n, 0]) % 100
            seen.add((t, b))
            np.testing.assert_array_equal(drawn.obs[:, n], rows["obs"][t : t + WINDOW, b])
            np.testing.assert_array_equal(drawn.reset[:, n], rows["reset"][t : t + WINDOW, b])
            for j in range(LEARNT):
                at = t + BURN_IN + j
                rewards, ended = steps_of(rows, at, b)
                assert drawn.action[j, n] == rows["action"][at, b]
                assert bool(drawn.usable[j, n]) == bool(rewards)
                assert drawn.counts[j, :, n].tolist() == [k < len(rewards) for k in range(N_STEP)]
                np.testing.assert_array_equal(drawn.reward[j, : len(rewards), n], np.float32(rewards))
                assert bool(drawn.terminated[j, n]) == ended
    assert seen == expected


def leaf_of(state: Ring) -> np.ndarray:
    assert state.tree is not None
    return np.asarray(state.tree.leaf)[:, : PLAN.rows // INTERVAL]


@pytest.mark.slow
def test_errors_are_priorities_of_sequences() -> None:
    found = rollouts(4)
    memory, _, draw = compiled(PLAN)
    state = filled(PLAN, found)
    np.testing.assert_array_equal(leaf_of(state), 1.0)
    drawn: SequenceBatch = draw(state, found[-1], jax.random.key(0))
    error = jnp.linspace(1.0, 9.0, PLAN.batch_size)
    after = memory.feedback(state, drawn.feedback(error))
    expected = np.ones((ENVS, PLAN.rows // INTERVAL), np.float32)
    for n in np.flatnonzero(np.asarray(drawn.usable).any(axis=0)):
        expected[drawn.env[n], drawn.row[n]] = (float(error[n]) + 1e-5) ** 0.6
    np.testing.assert_allclose(leaf_of(after), expected, rtol=1e-6)
    # New sequences get the largest priority that there is.
    added = compiled(PLAN)[1](after, found[0])
    np.testing.assert_allclose(leaf_of(added)[:, 0], expected.max(), rtol=1e-6)
    assert int(added.draws) == 1


@pytest.mark.slow
def test_sequences_of_no_transition_get_the_lowest_priority() -> None:
    """A sequence of one step may be the row of a final observation, which is never learnt from."""
    plan = dataclasses.replace(PLAN, sequences=SequencePlan(burn_in=0, length=1, interval=1))
    found = [dataclasses.replace(x, carry=jnp.zeros((LENGTH, ENVS, 1))) for x in rollouts(4)]
    memory, _, draw = compiled(plan)
    state = filled(plan, found)
    unusable = 0
    for i in range(20):
        drawn: SequenceBatch = draw(state, found[-1], jax.random.key(i))
        after = memory.feedback(state, drawn.feedback(jnp.where(drawn.usable[0], 1.0, 0.0)))
        for n in np.flatnonzero(~np.asarray(drawn.usable[0])):
            assert after.tree.leaf[drawn.env[n], drawn.row[n]] < 0.01
            unusable += 1
    assert unusable


@pytest.mark.slow
def test_nothing_is_learnt_before_a_sequence_is_whole() -> None:
    found = rollouts(3)
    for added in (1, 2, 3):
        drawn = compiled(PLAN)[2](filled(PLAN, found[:added]), found[added - 1], jax.random.key(0))
        assert bool(drawn.ready) == (added * LENGTH >= WINDOW)
        assert drawn.usable.any() == drawn.ready


@pytest.mark.slow
def test_devices_draw_the_sequences_that_one_draws() -> None:
    class Device(Axis):
        """The second of two devices; what is summed or gathered over them is in these tests the same."""

        def index(self) -> Any:
            return 1

    found = rollouts(4)
    whole = compiled(UNIFORM)[2](filled(UNIFORM, found), found[-1], jax.random.key(5))
    plan = dataclasses.replace(UNIFORM, axis=Device(size=2))
    second = [jax.tree.map(lambda x: x[:, ENVS // 2 :] if x.ndim > 1 else x, each) for each in found]
    part = compiled(plan)[2](filled(plan, second), second[-1], jax.random.key(5))
    half = PLAN.batch_size // 2
    np.testing.assert_array_equal(part.row, whole.row[half:])
    np.testing.assert_array_equal(part.env + ENVS // 2, whole.env[half:])
    np.testing.assert_array_equal(part.obs, whole.obs[:, half:])
