"""Tasks chosen at resets, from statistics in the training state."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.config import ConfigError
from jaxrl.experience.tasks import TaskSampler, require_signals
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis
from tests.compiled_programs import Program, tiny_config
from tests.experience.task_environments import LEVELS, Alternating, Corridor, LevelReplay

T, B = 16, 8


def program(sampler: TaskSampler, axis: Axis = Axis(), **fields: object) -> Program:  # noqa: B008
    config = tiny_config(**{"env__success": "", "network__core": "none"} | fields)
    agent = algorithms.build_agent(config, Corridor().spec)
    return Program(Iteration.build(config, Corridor(), agent, axis, sampler))


@pytest.fixture(scope="module")
def two_rollouts():
    """(state, trajectory, totals) after each of two iterations."""
    made = program(Alternating())
    state, found = jax.jit(made.init)(jax.random.key(0)), []
    for _ in range(2):
        state, trajectory, totals = jax.jit(made.rollout)(state)
        state, _ = jax.jit(made.update)(state, trajectory, totals)
        found.append((state, trajectory, totals))
    return found


@pytest.mark.slow
def test_an_episode_belongs_to_the_task_that_it_began_with(two_rollouts):
    # correctness 39: the sampler changes its mind between rollouts; episodes in progress stay what they are.
    for _, trajectory, _ in two_rollouts:
        rows = trajectory.episodes
        np.testing.assert_array_equal(rows.task["level"], trajectory.obs[..., 0])
        np.testing.assert_array_equal(rows.ended, trajectory.terminated)
        level = np.asarray(rows.task["level"])[np.asarray(rows.ended)]
        np.testing.assert_array_equal(np.asarray(rows.length)[np.asarray(rows.ended)], level + 1)
        np.testing.assert_array_equal(np.asarray(rows.episode_return)[np.asarray(rows.ended)], level)
        np.testing.assert_array_equal(np.asarray(rows.success)[np.asarray(rows.ended)], level % 2)
    first, second = (trajectory.obs[..., 0] for _, trajectory, _ in two_rollouts)
    assert set(np.unique(first)) == {1}
    # Every environment ends an episode of the first kind before it begins one of the second.
    assert set(np.unique(second)) == {1, 3}
    assert (np.diff(second, axis=0) >= 0).all()


@pytest.mark.slow
def test_rows_of_episodes_add_up_to_the_totals(two_rollouts):
    for _, trajectory, totals in two_rollouts:
        rows = trajectory.episodes
        assert int(totals.count) == int(rows.ended.sum())
        own = np.asarray(rows.episode_return)[np.asarray(rows.ended)]
        np.testing.assert_allclose(totals.episode_return, own.sum())


@pytest.mark.slow
@pytest.mark.parametrize("few_kernels", [False, True])
def test_level_replay_plays_every_level_and_then_those_with_large_advantages(few_kernels):
    made = program(LevelReplay(), axis=Axis(platform="gpu") if few_kernels else Axis())
    state = jax.jit(made.init)(jax.random.key(1))
    iterate = jax.jit(made.iterate)
    for _ in range(4):
        state, _ = iterate(state)
    assert (state.tasks.played > 0).all()
    # Silence is no success, and an odd level always succeeds.
    np.testing.assert_array_equal(
        state.tasks.succeeded, state.tasks.played * np.float32(np.arange(LEVELS) % 2)
    )
    assert np.isfinite(state.tasks.score).all()
    assert iterate._cache_size() == 1  # other tasks compile nothing


@pytest.mark.slow
def test_a_failed_iteration_rolls_the_sampler_back():
    made = program(LevelReplay())
    state = jax.jit(made.init)(jax.random.key(1))
    learning = made.iteration.learning
    after, trajectory, totals = jax.jit(made.rollout)(state)
    bad = dataclasses.replace(trajectory, reward=trajectory.reward * jnp.nan)
    kept, _, failed = jax.jit(learning.learn)(state, after, learning.empty_interval(), bad, totals)
    assert failed
    jax.tree.map(np.testing.assert_array_equal, kept.tasks, state.tasks)


def test_a_signal_that_is_not_offered_is_refused():
    class Greedy(LevelReplay):
        signals = ("regret",)

    algorithm = program(LevelReplay()).iteration.learning.algorithm
    with pytest.raises(ConfigError, match="`algorithm` .='ppo'. does not offer the signal regret"):
        require_signals(Greedy(), algorithm)
