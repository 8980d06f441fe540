"""Sampling for learnability: which levels are kept, steps that are counted, one device and several."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import default_config, resolve
from jaxrl.envs import registry
from jaxrl.experience.level_replay.learnability import LearnabilitySampler
from jaxrl.experience.level_replay.levels import LevelSource
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.experience.tasks import LevelResults
from jaxrl.types import Axis

EPISODES = 4


def sampler(candidates: int = 30, kept: int = 5) -> LearnabilitySampler:
    config = default_config()
    config.env.name = "jaxrl:Maze"
    config.curriculum.name = "learnability"
    config.levels.update(candidates=candidates, kept=kept, episodes=EPISODES)
    made = registry.make("jaxrl:Maze")
    return LearnabilitySampler.of(resolve(config, 1), made, EpisodeReports.of(made.spec))


def play(task_E, keys_E, quota_E, count):
    """A player who succeeds in `goal % 5` of four episodes, of as many steps as the number of the goal."""
    wins = task_E["goal"] % 5
    asked = (quota_E > 0)[:, None]
    success = (jnp.arange(count)[None] < wins[:, None]) & asked
    length = jnp.where(asked, jnp.broadcast_to(task_E["goal"][:, None], success.shape), 0)
    return LevelResults(success=success.astype(jnp.float32), length=length)


def refreshed(made, devices, state):
    axis = Axis("data", devices)
    run = lambda _: made.refresh(state, play, jax.random.key(2), axis)  # noqa: E731
    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(run, axis_name="data"))(np.arange(devices)))
    for x in jax.tree.leaves(found):
        assert (x == x[:1]).all()
    return jax.tree.map(lambda x: x[0], found)


@pytest.mark.slow
def test_levels_that_are_solved_sometimes_are_kept():
    made = sampler()
    state = jax.jit(made.init)(jax.random.key(0))
    found = refreshed(made, 1, state)
    rate = (found.task["goal"] % 5) / EPISODES
    np.testing.assert_allclose(found.learnability, rate * (1 - rate))
    # Of 30 levels a fifth has a rate of one half.
    assert (np.diff(found.learnability) <= 0).all()
    assert found.learnability[0] == 0.25
    assert found.refreshed == 0
    assert found.steps > 0
    for devices in (2, 4):  # 30 levels are 15 each, and 8 each of which two are none
        jax.tree.map(np.testing.assert_array_equal, refreshed(made, devices, state), found)


def test_all_candidates_are_played_and_counted():
    made = sampler(candidates=6, kept=6)
    found = refreshed(made, 1, jax.jit(made.init)(jax.random.key(0)))
    assert found.steps == EPISODES * found.task["goal"].sum()


@pytest.mark.slow
def test_candidates_from_a_pool_are_different_levels():
    """Until all of them have come, also over several devices."""
    pool = {"level": jnp.arange(10, 14)}
    source = LevelSource(capacity=4, pool=pool, draw=lambda key: None, example=None)
    index = jnp.arange(4).reshape(2, 2)
    found = jax.jit(jax.vmap(source.numbered, (None, 0)))(jax.random.key(3), index)["level"].ravel()
    assert {int(x) for x in found} == {10, 11, 12, 13}
    again = source.numbered(jax.random.key(3), jnp.arange(4, 8))["level"]
    np.testing.assert_array_equal(again, found)


@pytest.mark.slow
def test_a_resumed_run_does_not_choose_or_count_again():
    made = sampler()
    once = refreshed(made, 1, jax.jit(made.init)(jax.random.key(0)))
    jax.tree.map(np.testing.assert_array_equal, refreshed(made, 1, jax.tree.map(jnp.asarray, once)), once)
    later = refreshed(made, 1, jax.tree.map(jnp.asarray, once).replace(iteration=jnp.int32(7)))
    assert later.refreshed == 7
    assert later.steps == 2 * once.steps  # the key of this test is the same


@pytest.mark.slow
def test_kept_levels_have_their_share_each_as_often_as_the_others():
    made = sampler()
    keys = jax.random.split(jax.random.key(1), 4000)
    state, choose = jax.jit(made.init)(jax.random.key(0)), jax.jit(made.choose)
    assert not np.asarray(choose(state, keys)["kind"]).any()
    state = refreshed(made, 1, state)
    walls = (
        np.ones((5, 13), state.task["walls"].dtype) * np.arange(5, dtype=state.task["walls"].dtype)[:, None]
    )
    found = choose(state.replace(task=state.task | {"walls": walls}), keys)
    kept = np.asarray(found["kind"]) == 1
    assert abs(kept.mean() - 0.8) < 0.03
    which = np.asarray(found["task"]["walls"])[kept][:, 0]
    np.testing.assert_allclose(np.bincount(which) / len(which), 0.2, atol=0.03)
