"""`jaxrl:Navigation`: geometry by hand, ends of episodes, traced parameters, batches, pictures."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.native import navigation_room
from jaxrl.envs.native.navigation import Navigation
from jaxrl.envs.native.navigation_room import (
    NavigationParams,
    Obstacles,
    directions,
    lay_out,
    move_obstacles,
    normal_noise,
    words_of_layout,
)
from jaxrl.envs.native.random_words import random_words
from jaxrl.envs.vector import VectorEnv
from tests.envs.native import conformance

NAME = "jaxrl:Navigation"
lidar = jax.jit(navigation_room.lidar, static_argnums=2)
# Of any task: operation by operation, each room would be dozens of programs.
reset = jax.jit(Navigation().reset)


@pytest.fixture(scope="module")
def calm() -> Navigation:
    """Without noise and obstacles, so that everything can be computed by hand."""
    return envs.make(f"{NAME}(obstacles=0, sensor_noise=0.0, max_steps=30)")


@pytest.fixture(scope="module")
def step(calm):
    return jax.jit(calm.step)


def obstacles(*discs, direction=(0.0, 0.0)) -> Obstacles:
    x, y, radius = (jnp.array(column, jnp.float32) for column in zip(*discs, strict=True))
    along = [jnp.full(len(discs), part) for part in direction]
    return Obstacles(x=x, y=y, direction_x=along[0], direction_y=along[1], radius=radius)


def at(env, position, goal=(3.0, 3.0), discs=None, **params):
    """A state with the robot at a place, and one obstacle or none."""
    state, _ = reset(jax.random.key(0), env.default_task)
    absent = obstacles(*[(0.0, 0.0, -1.0)] * 8)
    return state.replace(
        position=jnp.array(position, jnp.float32),
        goal=jnp.array(goal, jnp.float32),
        obstacles=absent if discs is None else discs,
        params=state.params.replace(**params),
    )


def test_lidar_sees_walls_and_discs():
    # Ray 0 of 2 points along y, ray 1 against it.
    reading = lidar(jnp.array([1.0, 2.0]), obstacles((1.0, 4.0, 0.5), (1.0, 1.0, -1.0)), 2)
    np.testing.assert_allclose(reading, [1.5, 5.0], atol=1e-4)
    reading = lidar(jnp.array([1.0, 2.0]), obstacles((9.0, 9.0, -1.0)), 4)
    # At 45 degrees: 3 m up, 4 m right, 6 m left, 7 m down; 5 m at most.
    np.testing.assert_allclose(reading, [3 * 2**0.5, 3 * 2**0.5, 5, 5], atol=1e-4)


@pytest.mark.slow
def test_lidar_is_what_marching_along_the_rays_finds():
    state, _ = reset(jax.random.key(3), Navigation(sensor_noise=0.0).default_task)
    seen = np.asarray(lidar(state.position, state.obstacles, 24))
    along = np.linspace(0, 5, 5001)
    for ray, (x, y) in enumerate(zip(*directions(24), strict=True)):
        px, py = (np.asarray(state.position)[i] + along * d for i, d in ((0, x), (1, y)))
        free = (np.abs(px) < 5) & (np.abs(py) < 5)
        for k in range(8):
            ox, oy, radius = (float(getattr(state.obstacles, name)[k]) for name in ("x", "y", "radius"))
            free &= (px - ox) ** 2 + (py - oy) ** 2 > (radius**2 if radius > 0 else -1)
        first = along[np.argmin(free)] if not free.all() else 5.0
        assert seen[ray] == pytest.approx(first, abs=2e-3)


def test_noise_is_about_normal():
    noise = np.asarray(jax.jit(lambda key: normal_noise(random_words(key, 20_000)))(jax.random.key(0)))
    assert abs(noise.mean()) < 0.03
    assert noise.std() == pytest.approx(1, abs=0.03)
    assert (np.abs(noise) < 1).mean() == pytest.approx(0.683, abs=0.02)


def test_random_words_differ_and_are_even():
    draw = jax.jit(lambda key: random_words(key, 64))
    words = np.stack([np.asarray(draw(jax.random.key(k))) for k in range(64)])
    assert len(np.unique(words)) == words.size
    bits = (words[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(bits.mean(axis=(0, 1)) - 0.5).max() < 0.04
    assert np.abs(bits.mean(axis=(0, 2)) - 0.5).max() < 0.05


def test_layouts_keep_clear_of_start_and_goal():
    env = Navigation()
    numbers = {name: x for name, x in env.default_task.items() if name != "room"}
    params = NavigationParams(**numbers | {"goal_distance": jnp.float32(4)})
    found = jax.jit(jax.vmap(lambda key: lay_out(random_words(key, words_of_layout(8)), params, 8)))(
        jax.random.split(jax.random.key(1), 2000)
    )
    found = jax.tree.map(np.asarray, found)
    distance = np.linalg.norm(found.goal - found.position, axis=-1)
    assert distance.min() >= 0.999
    assert distance.max() <= 4.001
    assert np.abs(found.goal).max() < 5
    there = np.asarray(found.obstacles.radius) > 0
    assert there.mean() > 0.995
    for place, gap in ((found.position, 0.25 + 0.5), (found.goal, 0.5)):
        away = np.hypot(found.obstacles.x - place[:, :1], found.obstacles.y - place[:, 1:])
        assert (away - found.obstacles.radius)[there].min() > gap - 1e-3
    assert (np.asarray(found.obstacles.direction_x != 0).sum(-1) == 4).all()


def test_obstacles_bounce_off_walls():
    before = obstacles((4.55, 0.0, 0.4), direction=(1.0, 0.0))
    move = jax.jit(move_obstacles)
    after = move(before, jnp.float32(1))
    assert after.x[0] == pytest.approx(4.6)
    assert after.direction_x[0] == -1
    assert move(after, jnp.float32(1)).x[0] == pytest.approx(4.5)


def test_reward_is_progress(calm, step):
    state = at(calm, (0, 0), goal=(3, 0))
    state, timestep = step(jax.random.key(0), state, jnp.array([1.0, 0.0]))
    # From rest: 0.1 s * 4 m/s^2 = 0.4 m/s, so 0.04 m.
    np.testing.assert_allclose(state.position, [0.04, 0], atol=1e-6)
    assert timestep.reward == pytest.approx(0.2 * 0.04, abs=1e-6)
    np.testing.assert_allclose(timestep.obs[:4], [0.296, 0, 0.2, 0], atol=1e-6)


def test_a_push_has_length_1_at_most(calm, step):
    state, _ = step(jax.random.key(0), at(calm, (0, 0)), jnp.array([1.0, 1.0]))
    assert np.linalg.norm(state.velocity) == pytest.approx(0.4)


def test_success_terminates(calm, step):
    _, timestep = step(jax.random.key(0), at(calm, (2.4, 3), goal=(2.9, 3)), jnp.array([1.0, 0.0]))
    assert timestep.terminated
    assert not timestep.truncated
    assert timestep.info["success"]
    assert timestep.reward == pytest.approx(1 + 0.2 * 0.04, abs=1e-5)


@pytest.mark.parametrize(
    ("position", "discs"), [((4.74, 0), None), ((0, 0), [(0.86, 0.0, 0.6)] + [(0.0, 0.0, -1.0)] * 7)]
)
def test_collision_terminates(calm, step, position, discs):
    state = at(calm, position, discs=discs and obstacles(*discs))
    state, timestep = step(jax.random.key(0), state, jnp.array([1.0, 0.0]))
    assert timestep.terminated
    assert timestep.info["collision"]
    assert not timestep.info["success"]
    assert timestep.reward == pytest.approx(-2, abs=0.02)


def test_timeout_is_truncation(calm, step):
    state = at(calm, (0, 0))
    for t in range(30):
        state, timestep = step(jax.random.key(t), state, jnp.zeros(2))
        assert not timestep.terminated
        assert bool(timestep.truncated) == (t == 29)


def test_discrete_pushes_are_the_continuous_ones(calm, step):
    env = envs.make(f"{NAME}(control='discrete', obstacles=0, sensor_noise=0.0)")
    discrete = jax.jit(env.step)
    for action, push in ((0, (0, 0)), (1, (1, 0)), (3, (0, 1)), (4, (-(2**-0.5), 2**-0.5))):
        state, _ = discrete(jax.random.key(0), at(env, (0, 0)), np.int32(action))
        other, _ = step(jax.random.key(0), at(calm, (0, 0)), np.array(push, np.float32))
        np.testing.assert_allclose(state.position, other.position, atol=1e-6)


def test_goal_conditioned():
    env = envs.make(f"{NAME}(goal_conditioned=True, obstacles=0, sensor_noise=0.0)")
    step = jax.jit(env.step)
    state, timestep = step(jax.random.key(0), at(env, (0, 0), goal=(0.45, 0)), jnp.zeros(2))
    assert timestep.reward == 1
    assert timestep.info["success"]
    assert not timestep.done
    np.testing.assert_allclose(timestep.obs["achieved_goal"], state.position)
    np.testing.assert_allclose(timestep.obs["desired_goal"], state.goal)
    _, timestep = step(jax.random.key(0), at(env, (4.74, 0), goal=(0, 0)), jnp.array([1.0, 0.0]))
    assert timestep.reward == -1
    assert timestep.info["collision"]
    assert not timestep.done
    assert env.compute_reward(jnp.zeros((2, 2)), jnp.array([[0.49, 0], [0.5, 0]])).tolist() == [1, -1]
    dense = Navigation(goal_conditioned=True, reward="dense")
    assert dense.compute_reward(jnp.zeros(2), jnp.array([3.0, 4.0])) == -5


def test_the_robot_stops_at_what_it_runs_into():
    env = Navigation(goal_conditioned=True, obstacles=0, sensor_noise=0.0)
    state = at(env, (0, 0), goal=(4, 4), discs=obstacles((0.86, 0.0, 0.6), *[(0.0, 0.0, -1.0)] * 7))
    state, _ = jax.jit(env.step)(jax.random.key(0), state, jnp.array([1.0, 0.0]))
    np.testing.assert_allclose(state.position, [0.01, 0], atol=1e-6)
    np.testing.assert_array_equal(state.velocity, 0)


@pytest.mark.slow
def test_tasks_change_without_compiling():
    env = Navigation()
    traces = []

    @jax.jit
    def play(key, task):
        traces.append(None)
        state, _ = env.reset(key, task)
        after, timestep = env.step(key, state, jnp.zeros(2))
        return state, after, timestep.obs

    key = jax.random.key(0)
    for count, moving, speed, noise in ((8, 4, 1.0, 0.0), (3, 1, 0.0, 0.5), (0, 0, 2.0, 0.0)):
        task = {
            "obstacles": jnp.int32(count),
            "moving": jnp.int32(moving),
            "obstacle_speed": jnp.float32(speed),
            "sensor_noise": jnp.float32(noise),
            "goal_distance": jnp.float32(1 + speed),
        }
        before, after, obs = play(key, task)
        there = np.asarray(before.obstacles.radius) > 0
        assert there.sum() == count
        way = np.hypot(after.obstacles.x - before.obstacles.x, after.obstacles.y - before.obstacles.y)
        np.testing.assert_allclose(way[there], [0.1 * speed * (k < moving) for k in range(count)], atol=1e-5)
        assert np.linalg.norm(before.goal - before.position) <= 1 + speed + 1e-4
        exact = np.asarray(navigation_room.log_scale(lidar(after.position, after.obstacles, 24)))
        assert (np.abs(obs[4:] - exact).max() > 0.05) == (noise > 0)
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1, 2])
def test_single_environments_have_tasks_of_their_own(ratio):
    # Under wrappers with and without a state of their own, and with resets in rounds as well.
    wrappers = ("time_limit(steps=3)", "frame_stack(frames=2)", f"optimistic_resets(ratio={ratio})")
    single = envs.make(f"{NAME}(obstacles=2, moving=0)", wrappers)
    env, keys = VectorEnv(single), jax.random.split(jax.random.key(0), 4)
    state, _ = jax.jit(env.reset)(keys)
    before = state.env.env.env
    counts = jnp.array([0, 1, 5, 8], jnp.int32)
    task_B = {name: jnp.full(4, x) for name, x in single.default_task.items()} | {"obstacles": counts}
    step, push = jax.jit(env.step), jnp.zeros((4, 2))
    for _ in range(7):  # each third one begins new episodes
        state, _ = step(keys, state, push, task_B=task_B)
    rooms = state.env.env.env
    there = lambda rooms: (np.asarray(rooms.obstacles.radius) > 0).sum(axis=1)  # noqa: E731
    np.testing.assert_array_equal(there(before), [2, 2, 2, 2])
    np.testing.assert_array_equal(there(rooms), counts)
    assert (np.asarray(rooms.goal) != np.asarray(before.goal)).all()
    assert step._cache_size() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "goal_conditioned=True, max_steps=5, lidar_rays=3, max_obstacles=2, obstacles=2, moving=1",
        pytest.param("max_steps=12", marks=pytest.mark.long),
    ],
)
def test_what_it_declares_holds_in_batches(arguments):
    found = conformance.check(f"{NAME}({arguments}, control='discrete')", length=24)
    assert found["truncated"].any()


@pytest.mark.slow
def test_pictures():
    env = Navigation(moving=0, obstacles=1)
    state = at(env, (-2, 0), goal=(2, 2), discs=obstacles((0.0, -3.0, 0.5), *[(0.0, 0.0, -1.0)] * 7))
    picture = env.render(state)
    assert (picture.shape, picture.dtype) == ((240, 240, 3), np.uint8)
    # 24 pixels a metre, from the upper left corner; y points up.
    assert picture[120, 72].tolist() == [40, 90, 200]
    assert picture[72, 168].tolist() == [122, 196, 122]
    assert picture[192, 120].tolist() == [128, 132, 140]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("control='keyboard'", "control (='keyboard') must be one of continuous, discrete"),
        ("reward='big'", "reward (='big') must be one of auto, progress, sparse, dense"),
        ("goal_conditioned=2", "goal_conditioned (=2) must be True or False"),
        ("obstacles=9", "obstacles (=9) must be an integer from 0 to 8"),
        ("obstacles=2.5", "obstacles (=2.5) must be an integer from 0 to 8"),
        ("moving=-1", "moving (=-1) must be an integer from 0 to 8"),
        ("max_obstacles=0", "max_obstacles (=0) must be an integer of at least 1"),
        ("goal_distance=0.5", "goal_distance (=0.5) must be a number from 1 to 15"),
        ("sensor_noise='a'", "sensor_noise (='a') must be a number from 0 to 5"),
        ("lidar_rays=1000", "lidar_rays (=1000) must be at most 256"),
        ("speed=1", "unknown argument of jaxrl:Navigation 'speed'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        envs.make(f"{NAME}({arguments})")
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_room_with_a_number_is_always_the_same():
    env = envs.make(NAME)
    task = env.draw_task(jax.random.key(3))
    other = env.draw_task(jax.random.key(4))
    one, two = (reset(jax.random.key(k), task)[0] for k in (1, 2))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    assert (one.position != reset(jax.random.key(1), other)[0].position).any()
    # Neighbouring numbers give rooms as different as any two.
    rooms = task["room"] + jnp.arange(200)
    starts = jax.jit(jax.vmap(lambda room: env.reset(jax.random.key(1), task | {"room": room})[0].position))(
        rooms
    )
    assert np.abs(np.mean(starts, 0)).max() < 1
    assert np.std(starts, 0).min() > 2
    # Without a number the key decides, as ever.
    draw = jax.jit(env.reset)
    drawn, _ = draw(jax.random.key(1))
    assert (drawn.position != draw(jax.random.key(2))[0].position).any()
    jax.tree.map(np.testing.assert_array_equal, drawn, draw(jax.random.key(1), env.default_task)[0])
