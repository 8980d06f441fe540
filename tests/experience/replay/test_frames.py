"""Stacks of frames in a ring beside the observations that were collected, and beside a plain loop."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.behaviour import check_behaviour
from jaxrl.envs.host_env import HostOptions
from jaxrl.envs.vector import VectorEnv
from jaxrl.experience.replay import ring
from jaxrl.types import Trajectory
from tests.experience.replay import test_replay_memory, test_sequence_replay
from tests.experience.replay.test_replay_memory import ENVS, LENGTH, drawable, history
from tests.experience.replay.test_sequence_replay import compiled, filled

K, CHANNELS = 3, 2
SINGLE = dataclasses.replace(test_replay_memory.PLAN, frames=K)
SEQUENCES = dataclasses.replace(test_sequence_replay.PLAN, frames=K)
WINDOW = test_sequence_replay.WINDOW


@functools.cache
def rollouts(count: int) -> list[Trajectory]:
    """Those of single rows, with uint8 stacks; an episode repeats its first frame or goes on by chance."""
    random, found = np.random.default_rng(3), []
    stack = np.zeros((ENVS, K * CHANNELS), np.uint8)
    for each in test_sequence_replay.rollouts(count):
        rows = []
        for reset in np.asarray(each.reset):
            frame = random.integers(0, 255, (ENVS, CHANNELS), np.uint8)
            goes_on = np.concatenate([stack[:, CHANNELS:], frame], axis=1)
            anew = reset & ((random.random(ENVS) < 0.5) | (not found and not rows))
            stack = np.where(anew[:, None], np.tile(frame, K), goes_on)
            rows.append(stack)
        found.append(dataclasses.replace(each, obs=jnp.asarray(np.stack(rows))))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("priorities", [SINGLE.priorities, None])
@pytest.mark.parametrize("added", [1, 3, 4, 8])
def test_single_rows_are_seen_as_they_were(added: int, priorities: Any) -> None:
    plan = dataclasses.replace(SINGLE, priorities=priorities)
    found = rollouts(added)
    state, rows, draw = filled(plan, found), history(found), compiled(plan)[2]
    oldest = max(0, LENGTH * added - plan.rows) + K - 1
    expected = {k: v for k, v in drawable(rows).items() if k // 100 >= oldest}
    seen = set()
    for i in range(40):
        drawn = jax.device_get(draw(state, found[-1], jax.random.key(i)))
        assert drawn.obs.dtype == np.uint8
        for n in np.flatnonzero(drawn.usable):
            name = int(drawn.action[n])
            _, after, ended = expected[name]
            np.testing.assert_array_equal(drawn.obs[n], rows["obs"][name // 100, name % 100])
            if not ended:
                np.testing.assert_array_equal(drawn.next_obs[n], rows["obs"][after // 100, after % 100])
            seen.add(name)
    assert seen == set(expected)


@pytest.mark.slow
@pytest.mark.parametrize("added", [3, 4, 9])
def test_sequences_are_seen_as_they_were(added: int) -> None:
    found, interval = rollouts(added), test_sequence_replay.INTERVAL
    state, rows, draw = filled(SEQUENCES, found), history(found), compiled(SEQUENCES)[2]
    total, seen = LENGTH * added, set()
    # The first sequence begins where frames are gone.
    first = max(0, total - SEQUENCES.rows) + interval
    expected = {(t, b) for t in range(first, total - WINDOW + 1, interval) for b in range(ENVS)}
    for i in range(20):
        drawn = jax.device_get(draw(state, found[-1], jax.random.key(i)))
        for n in np.flatnonzero(drawn.usable.any(axis=0)):
            t, b = int(drawn.carry[n, 0]) // 100, int(drawn.carry[n, 0]) % 100
            seen.add((t, b))
            np.testing.assert_array_equal(drawn.obs[:, n], rows["obs"][t : t + WINDOW, b])
    assert seen == expected


def test_episodes_begin_in_both_ways_in_these_tests() -> None:
    found = history(rollouts(9))
    stack, reset = found["obs"], found["reset"]
    anew = np.asarray(begins_anew(stack, reset, K))
    assert anew.any()
    assert (reset & ~anew).any()
    parts = stack.reshape(*stack.shape[:2], K, CHANNELS)
    np.testing.assert_array_equal(anew, reset & (parts == parts[:, :, -1:]).all(axis=(2, 3)))


def test_a_ring_keeps_one_frame_of_each_row() -> None:
    plans = (SINGLE, dataclasses.replace(SINGLE, frames=1))
    state, whole = (compiled(plan)[0].init(rollouts(1)[0]) for plan in plans)
    assert state.rows["obs"].dtype == np.uint8
    assert K * state.rows["obs"].nbytes == whole.rows["obs"].nbytes


begins_anew = jax.jit(ring.begins_anew, static_argnums=2)


@functools.partial(jax.jit, static_argnums=2)
def restacked(obs: jax.Array, reset: jax.Array, count: int) -> jax.Array:
    """The observations that a ring of [T, B, *] gives back, of all rows but the first `count` - 1."""
    anew = ring.begins_anew(obs, reset, count)
    row = jnp.broadcast_to(jnp.arange(count - 1, len(obs))[:, None], (len(obs) - count + 1, obs.shape[1]))
    newest = ring.newest(obs, count)
    return ring.stack_frames(newest, anew, row, jnp.arange(obs.shape[1]), count)


@pytest.mark.slow
def test_the_wrapper_on_the_device() -> None:
    env = VectorEnv(envs.make("gymnax:Pendulum-v1", ["time_limit(steps=5)", "frame_stack(frames=4)"]))
    assert env.spec.stacked_frames == 4

    def step(loop: Any, key: jax.Array) -> tuple[Any, Any]:
        state, obs, reset = loop
        actions = jax.random.uniform(key, (3, 1), minval=-1.0)
        state, after = env.step(jax.random.split(key, 3), state, actions)
        # As the collector of learners that need final observations: they are rows of their own.
        return (state, after.obs, after.done), (obs, reset, after.final_obs, after.done)

    @jax.jit
    def play() -> Any:
        start = env.reset(jax.random.split(jax.random.key(0), 3))
        keys = jax.random.split(jax.random.key(1), 30)
        return jax.lax.scan(step, (*start, jnp.ones(3, bool)), keys)[1]

    obs, reset, final, done = map(np.asarray, play())
    assert done.all(axis=1).any()  # all end together
    rows, begins = [], []
    for t in range(len(obs)):
        rows.append(obs[t])
        begins.append(reset[t])
        if done[t].any():
            rows.append(final[t])
            begins.append(np.zeros(3, bool))
    stacks = np.stack(rows)
    np.testing.assert_array_equal(restacked(stacks, np.stack(begins), 4), stacks[3:])


@pytest.mark.slow
@pytest.mark.parametrize("lives", [True, False])
def test_atari_of_envpool(lives: bool) -> None:
    # A life that is lost ends an episode, and the stack of the next goes on.
    name = f"envpool:Breakout-v5(stack_num=3, episodic_life={lives}, img_height=24, img_width=20)"
    factory = envs.make_host(name)
    assert factory.spec.stacked_frames == 3
    env = factory.start(HostOptions(seeds=(1, 2), num_workers=1))
    random, obs, first = np.random.default_rng(0), [], []
    for _ in range(250):
        step = env.recv(0)
        obs.append(np.asarray(env.decode(step.obs)))
        first.append(np.array(step.first))
        env.send(0, random.integers(0, 4, 2))
    env.close()
    stacks, reset = np.stack(obs), np.stack(first)
    anew = np.asarray(begins_anew(stacks, reset, 3))
    assert (reset & ~anew).any() == lives
    assert anew[1:].any()
    np.testing.assert_array_equal(restacked(stacks, reset, 3), stacks[2:])


@pytest.mark.parametrize(
    ("wrappers", "count"),
    [
        (("frame_stack(frames=4)", "reward_scale(factor=2)", "sticky_actions"), 4),
        (("frame_stack(frames=2)", "frame_stack(frames=3)"), 3),
        (("frame_stack(frames=4)", "action_repeat(times=2)"), 1),
        (("frame_stack(frames=4)", "noisy_observation(std=0.1)"), 1),
        (("frame_stack(frames=4)", "previous_reward"), 1),
        (("frame_stack(frames=4)", "previous_action"), 1),
        (("frame_stack(frames=4)", "select_observation(indices=(0, 1))"), 1),
    ],
)
def test_wrappers_that_end_a_stack(wrappers: tuple[str, ...], count: int) -> None:
    assert envs.make("gymnax:CartPole-v1", wrappers).spec.stacked_frames == count


@pytest.mark.slow
def test_a_stack_that_is_declared_is_looked_at() -> None:
    check_behaviour("mine", envs.make("gymnax:CartPole-v1", ["frame_stack(frames=2)"]))
    env: Any = envs.make("gymnax:CartPole-v1")
    env.spec = dataclasses.replace(env.spec, stacked_frames=2)
    with pytest.raises(ValueError, match="mine: spec.stacked_frames .=2. declares"):
        check_behaviour("mine", env)
