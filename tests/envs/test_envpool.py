"""envpool's environments: the contract of `HostEnv`, Atari's lives and scores, names and options."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import time

import jax
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.adapters import envpool_pool
from jaxrl.envs.base import Box, Dict, Discrete
from jaxrl.envs.host_env import HostEnvError, HostOptions

# Without loading it: the adapter must cope with an envpool that was imported before Qt.
HAS_QT = importlib.util.find_spec("PyQt5") is not None or ctypes.util.find_library("Qt5Gui") is not None
needs_qt = pytest.mark.skipif(not HAS_QT, reason="needs Qt 5: pip install PyQt5-Qt5")


def act(env, t, num):
    """Actions that depend on the step alone."""
    space = env.spec.action_space
    if isinstance(space, Discrete):
        return np.full(num, t % space.n, np.int32)
    return np.full((num, *space.shape), np.sin(t), np.float32)


def play(env, length):
    """Every `HostStep` of all groups, joined; [T + 1, B, ...], the first observations included."""
    rows = []
    for t in range(length + 1):
        if t > 0:
            for g in range(env.num_groups):
                env.send(g, act(env, t, env.num_envs // env.num_groups))
        steps = [vars(env.recv(g)) for g in range(env.num_groups)]
        rows.append(jax.tree.map(lambda *parts: np.concatenate(parts), *steps))
    return jax.tree.map(lambda *xs: np.stack(xs), *rows)


def fields_equal(one, other):
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


IMAGE = Box.of(0, 255, (64, 64, 3), np.uint8)
MEMORY = {
    "direction": Discrete(4),
    "image": Box.of(0, 255, (7, 7, 3), np.uint8),
    "mission": Box.of(0, 255, (96,), np.uint8),
}


@pytest.mark.parametrize(
    ("name", "observation", "action", "limit"),
    [
        ("Pong-v5", Box.of(0, 255, (84, 84, 4), np.uint8), Discrete(6), 27000),
        pytest.param(
            "Pong-v5(stack_num=2, img_height=42)",
            Box.of(0, 255, (42, 84, 2), np.uint8),
            Discrete(6),
            27000,
            marks=pytest.mark.slow,
        ),
        ("MiniGrid-MemoryS7-v0", Dict(tuple(MEMORY.items())), Discrete(7), 245),
        ("MiniGrid-MemoryS7-v0(keys=('image',))", Dict((("image", MEMORY["image"]),)), Discrete(7), 245),
        ("HalfCheetah-v4", Box.of(-np.inf, np.inf, (17,)), Box.of(-1, 1, (6,)), 1000),
        ("LunarLander-v3", Box.of(-np.inf, np.inf, (8,)), Discrete(4), 1000),
        pytest.param(
            "CoinrunEasy-v0(num_levels=200)", IMAGE, Discrete(15), 1000, marks=(needs_qt, pytest.mark.slow)
        ),
    ],
)
def test_specs_and_first_observations(start, name, observation, action, limit):
    env = start(f"envpool:{name}")
    spec = env.spec
    assert (spec.observation_space, spec.action_space, spec.max_episode_steps) == (observation, action, limit)
    step = env.recv(0)
    assert step.first.all()
    obs = env.decode(step.obs)
    expected = jax.tree.map(lambda x: (4, *x), shapes(observation), is_leaf=lambda x: isinstance(x, tuple))
    assert jax.tree.map(lambda x: x.shape, obs) == expected
    # Bytes stay bytes on their way to the device.
    dtypes = {np.dtype(x.dtype) for x in jax.tree.leaves(step.obs)}
    assert dtypes <= {np.dtype(t) for t in (np.uint8, np.int32, np.float32)}


def shapes(space):
    return {key: part.shape for key, part in space.spaces} if isinstance(space, Dict) else space.shape


@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v4", "MiniGrid-MemoryS7-v0", "LunarLander-v3"])
def test_environments_reset_on_the_step_after_an_end(start, name):
    # correctness 10.
    got = play(start(f"envpool:{name}(max_episode_steps=5)"), 14)
    truncated_T = np.arange(15) % 6 == 5
    for field, expected_T in (
        ("truncated", truncated_T),
        ("terminated", np.zeros(15, bool)),
        ("first", np.arange(15) % 6 == 0),
        ("game_over", truncated_T),
    ):
        np.testing.assert_array_equal(got[field], np.repeat(expected_T[:, None], 4, axis=1), err_msg=field)
    assert (got["reward"][got["first"]] == 0).all()
    np.testing.assert_array_equal(got["score"], got["reward"])


def test_last_observation_of_an_episode_is_the_true_final_one(start):
    # A longer limit changes nothing but what comes after the fifth step.
    short = play(start("envpool:HalfCheetah-v4(max_episode_steps=5)"), 6)
    long = play(start("envpool:HalfCheetah-v4"), 6)
    np.testing.assert_array_equal(short["obs"][:6], long["obs"][:6])
    assert (short["obs"][6] != long["obs"][6]).any(axis=1).all()


@pytest.mark.slow
def test_a_lost_life_ends_the_learners_episode_and_not_the_game(start):
    # correctness 11. Breakout has five lives; the paddle stands still.
    env = start("envpool:Breakout-v5(episodic_life=True)", num_envs=2)
    rows = {name: [] for name in ("terminated", "truncated", "first", "game_over")}
    env.recv(0)
    for t in range(400):
        env.send(0, np.full(2, t % 2, np.int32))
        step = env.recv(0)
        for name, values in rows.items():
            values.append(getattr(step, name)[0])
    terminated, truncated, first, game_over = (np.array(x) for x in rows.values())
    assert not truncated.any()
    np.testing.assert_array_equal(first[1:], terminated[:-1])
    lives, games = terminated.sum(), game_over.sum()
    assert games >= 1
    assert lives // 5 == games
    assert terminated[game_over].all()


@pytest.mark.slow
def test_score_is_not_clipped(start):
    # correctness 14: Seaquest and others pay tens of points a time.
    env = start("envpool:Asteroids-v5(reward_clip=True)", num_envs=2)
    plain = start("envpool:Asteroids-v5", num_envs=2)
    clipped, raw = play(env, 300), play(plain, 300)
    np.testing.assert_array_equal(clipped["obs"], raw["obs"])
    assert raw["reward"].max() > 1
    assert clipped["reward"].max() == 1
    np.testing.assert_array_equal(clipped["score"], raw["reward"])
    np.testing.assert_array_equal(raw["score"], raw["reward"])


@pytest.mark.slow
def test_what_environments_tell(start):
    name = "envpool:Pong-v5"
    assert envs.make_host(name, ["report(key='lives', per_episode='max')"]).spec.reports
    with pytest.raises(ValueError, match=r"unknown entry of the info of envpool:Pong-v5 'ball'"):
        envs.make_host(name, ["report(key='ball')"])
    env = start("envpool:Asteroids-v5", num_envs=2, info_keys=("lives", "reward"))
    got = play(env, 20)
    assert set(got["info"]) == {"lives", "reward"}
    assert (got["info"]["lives"][1:] == 4).all()
    np.testing.assert_array_equal(got["info"]["reward"], got["score"])


@pytest.mark.slow
def test_images_are_decoded_to_channels_last(start):
    env = start("envpool:Pong-v5", num_envs=2)
    raw = play(env, 3)["obs"]
    assert raw.shape == (4, 2, 4, 84, 84)
    decoded = np.asarray(env.decode(raw))
    np.testing.assert_array_equal(decoded, np.moveaxis(raw, 2, -1))
    # The newest frame is the last channel.
    np.testing.assert_array_equal(decoded[2, ..., -2], decoded[1, ..., -1])


@pytest.mark.parametrize("name", ["CartPole-v1", pytest.param("Pong-v5", marks=pytest.mark.slow)])
def test_seeds_decide_and_groups_and_threads_do_not(start, name):
    # correctness 25.
    name = f"envpool:{name}(max_episode_steps=20)"
    one = play(start(name), 45)
    fields_equal(one, play(start(name, num_groups=2, num_workers=2), 45))
    env = envs.make_host(name).start(HostOptions(seeds=(3, 0, 1, 2)))
    shuffled = play(env, 45)
    env.close()
    order = [1, 2, 3, 0]
    fields_equal(jax.tree.map(lambda x: x[:, order], shuffled), one)
    if name.startswith("envpool:CartPole"):
        assert len(np.unique(one["obs"][0, :, 0])) == 4


@pytest.mark.parametrize("num_groups", [1, 2])
def test_first_episodes_can_be_cut_off(start, num_groups):
    # correctness 24: a fixed time limit would have all environments end at once for ever.
    cuts = (3, 3, 6, 9)
    env = start(
        "envpool:HalfCheetah-v4(max_episode_steps=6)", num_groups=num_groups, first_episode_steps=cuts
    )
    got = play(env, 14)
    ends = [np.flatnonzero(x).tolist() for x in got["truncated"].T]
    assert ends == [[3, 10], [3, 10], [6, 13], [6, 13]]
    np.testing.assert_array_equal(got["first"][1:], got["truncated"][:-1])
    # Up to the cut it is the same environment, in its own row, though rows come as they finish.
    whole = play(start("envpool:HalfCheetah-v4"), 14)
    for b in range(4):
        np.testing.assert_array_equal(
            got["obs"][: min(cuts[b], 6) + 1, b], whole["obs"][: min(cuts[b], 6) + 1, b]
        )


def test_numbers_that_are_not_finite_name_the_environment(start):
    env = start("envpool:Pendulum-v1", num_groups=2)
    play(env, 2)
    env.send(1, np.array([[0.0], [np.nan]], np.float32))
    with pytest.raises(
        HostEnvError, match=r"^envpool:Pendulum-v1, environment 3, step 3: returned .*not finite"
    ):
        env.recv(1)
    with pytest.raises(HostEnvError, match="closed"):
        env.recv(1)


def test_closing_ends_the_threads():
    def threads():
        return len(os.listdir("/proc/self/task"))

    factory = envs.make_host("envpool:CartPole-v1")
    before = threads()
    env = factory.start(HostOptions(seeds=(1, 2, 3, 4), num_groups=2, num_workers=4))
    play(env, 3)
    assert threads() >= before + 4
    env.close()
    env.close()
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threads() <= before


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("envpool:Pongg-v5", ["unknown environment", "did you mean envpool:Pong-v5"]),
        ("envpool:Pong-v5(episodic_lif=True)", ["unknown argument", "did you mean episodic_life"]),
        ("envpool:Pong-v5(episodic_life=1)", ["episodic_life (=1) must be of type bool, like False"]),
        ("envpool:Pong-v5(stack_num=0)", ["stack_num (=0)", "at least 1"]),
        ("envpool:Pong-v5(num_envs=8)", ["unknown argument of envpool:Pong-v5 'num_envs'"]),
        ("envpool:IntersectionMultiAgent-v1", ["for several players (2)"]),
        ("envpool:MiniGrid-MemoryS7-v0(keys=('imag',))", ["unknown observation", "did you mean image"]),
    ],
)
def test_wrong_name(name, parts):
    with pytest.raises(ValueError, match=r"\S") as caught:
        envs.make_host(name)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    for part in parts:
        assert part in message


def test_procgen_without_qt_says_what_to_install(monkeypatch):
    monkeypatch.setattr(envpool_pool, "_load_libraries", lambda libraries: False)
    with pytest.raises(ImportError) as caught:
        envs.make_host("envpool:CoinrunEasy-v0")
    assert "\n" not in str(caught.value)
    assert "pip install PyQt5-Qt5" in str(caught.value)
    assert "apt install libqt5gui5" in str(caught.value)


@pytest.mark.slow
@needs_qt
def test_procgen_levels(start):
    levels = start("envpool:CoinrunEasy-v0(num_levels=1, start_level=3)")
    obs = levels.recv(0).obs
    assert obs.shape == (4, 64, 64, 3)
    assert len({x.tobytes() for x in obs}) == 1
    others = start("envpool:CoinrunEasy-v0(num_levels=0, start_level=3)").recv(0).obs
    assert len({x.tobytes() for x in others}) == 4
