"""`jaxrl:Platformer`: the solver against the environment, moves by hand, pictures."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.native.platformer import level_files
from jaxrl.envs.native.platformer.generator import generate
from jaxrl.envs.native.platformer.level import CATEGORIES, PlatformerLevel
from jaxrl.envs.native.platformer.physics import (
    JUMP,
    MAX_FALL,
    MAX_RUN,
    NUM_ACTIONS,
    advance,
    jump_matters,
    start_of,
)
from jaxrl.envs.native.platformer.solver import Contacts, solve, solves
from tests.envs.native import conformance

NAME = "jaxrl:Platformer"
ROOM = ("##########", "#........#", "#........#", "#........#", "#S..K...E#", "##########")
MINED = ("##########", "#........#", "#........#", "#........#", "#S..xK..E#", "##########")
WALLED = ("##########", "#....#...#", "#....#...#", "#....#...#", "#S.K.#..E#", "##########")
SHAFT = ("######", "####E#", "####.#", "##...#", "##...#", "##...#", "##...#", "##...#", "#SK..#", "######")


def level(rows, category="simple", solution="") -> PlatformerLevel:
    return PlatformerLevel(tuple(rows), category, 0, solution)


def folder_of(path, *levels):
    for i, one in enumerate(levels):
        file = path / "train" / one.category / f"{i:04}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(one.to_json())
    return path / "train"


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """The environment of ROOM and MINED, with their solutions."""
    path = tmp_path_factory.mktemp("levels")
    solved = [dataclasses.replace(level(rows), solution=solve(level(rows))) for rows in (ROOM, MINED)]
    return envs.make(f"{NAME}(levels='{folder_of(path, *solved)}', max_steps=40)")


@pytest.fixture(scope="module")
def play(room):
    """Plays actions in a level of `room`, up to 40; returns the timesteps up to the end."""
    start = jax.jit(room.start)

    @jax.jit
    def steps(state, actions):
        return jax.lax.scan(
            lambda s, a: (lambda out: (out[0], out))(room.step(jax.random.key(0), s, a)), state, actions
        )

    def play(index, actions):
        state, _ = start(jnp.int32(index))
        padded = [int(a) for a in actions] + [1] * (40 - len(actions))
        states, found = steps(state, jnp.array(padded, jnp.int32))[1]
        ended = np.flatnonzero(found.terminated | found.truncated)[0]
        return [jax.tree.map(lambda x, t=t: np.asarray(x)[t], (states, found)) for t in range(ended + 1)]

    return play


def test_speed_follows_by_hand():
    free = np.zeros((200, 200), bool)
    free[100:] = True  # ground below y = 100; a player of 6 units stands at 94

    def blocked(x, y):
        return bool(free[y : y + 6, x : x + 6].any())

    body = (50, 94, 0, 0)
    xs, ys = [], []
    for action in [2] * 6 + [1] * 5:
        body = tuple(int(part) for part in advance(np, blocked, body, np.int32(action)))
        xs.append(body[2])
    assert xs == [1, 2, 3, MAX_RUN, MAX_RUN, MAX_RUN, 3, 2, 1, 0, 0]
    for _ in range(14):
        body = tuple(int(part) for part in advance(np, blocked, body, np.int32(4)))
        ys.append(94 - body[1])
        if body[1] == 94:
            break
    # Up by 6, 5, 4, 3, 2, 1; a step at rest; and down again.
    assert ys == [JUMP, 11, 15, 18, 20, 21, 21, 20, 18, 15, 11, 6, 0]
    assert MAX_FALL == 6


def test_a_short_press_is_a_short_jump():
    contacts = Contacts(level(ROOM))
    x, y = start_of(1, 4)
    body, heights = (np.int32(x), np.int32(y), np.int32(0), np.int32(0)), []
    for action in (4, 1, 1, 1):
        body, *_ = contacts.step(body, np.bool_(False), np.int32(action))
        heights.append(int(y - body[1]))
    assert heights == [6, 8, 9, 9]


def test_where_the_jump_key_matters():
    # The solver tries actions without the key there alone.
    contacts = Contacts(generate("mine_heavy", 0))
    rng = np.random.default_rng(0)
    y, x = np.argwhere(~contacts.solid)[rng.integers(0, (~contacts.solid).sum(), 20_000)].T
    vx, vy = rng.integers(-MAX_RUN, MAX_RUN + 1, len(x)), rng.integers(-MAX_FALL, MAX_FALL + 1, len(x))
    body = tuple(part.astype(np.int32) for part in (x, y, vx, vy))
    differs = np.zeros(len(x), bool)
    for action in range(NUM_ACTIONS // 2):
        ways = [
            advance(np, contacts.blocked, body, np.int32(action + held)) for held in (0, NUM_ACTIONS // 2)
        ]
        differs |= np.any([a != b for a, b in zip(*ways, strict=True)], axis=0)
    matters = jump_matters(contacts.blocked, body)
    assert not (differs & ~matters).any()
    assert 0.2 < differs.mean() < 0.8
    assert differs.sum() > 0.9 * matters.sum()


def test_shortest_ways_by_hand():
    solution = solve(level(ROOM))
    # From x = 9 until x + 6 > 64, where the exit begins: 50 units; 1 + 2 + 3 come first, then 4 a step.
    assert len(solution) == 3 + 11
    assert solves(level(ROOM), "2" * 14)
    assert not solves(level(ROOM), "2" * 13)
    assert solve(level(WALLED)) is None
    assert len(solve(level(MINED))) >= len(solution)


def test_a_wall_is_climbed_by_kicks():
    found = solve(level(SHAFT))
    assert solves(level(SHAFT), found)
    # A jump alone rises 21 units, less than three tiles.
    assert not solves(level(SHAFT), found[:-1])
    assert not solves(level(SHAFT), "4" * 60)


@pytest.mark.slow
def test_solutions_solve_the_environment(room, play):
    for i, one in enumerate(room.levels):
        steps = play(i, one.solution)
        assert len(steps) == one.optimal_steps
        last = steps[-1][1]
        assert last.terminated
        assert last.info["success"]
        assert last.info["steps_over_optimal"] == 1
        assert all(np.isnan(step.info["steps_over_optimal"]) for _, step in steps[:-1])
        assert sum(step.reward for _, step in steps) > 1


def test_a_mine_terminates(play):
    steps = play(1, "2" * 30)
    last = steps[-1][1]
    assert last.terminated
    assert last.info["mine_contacts"] == 1
    assert not last.info["success"]
    assert last.reward == pytest.approx(-0.5, abs=0.06)


def test_timeout_is_truncation(play):
    steps = play(0, "1" * 40)
    assert len(steps) == 40
    assert [bool(step.terminated) for _, step in steps] == [False] * 40
    assert [bool(step.truncated) for _, step in steps] == [False] * 39 + [True]


def test_the_exit_opens_by_the_switch(room, play):
    states = [state for state, _ in play(0, room.levels[0].solution)]
    on = [bool(state.on) for state in states]
    # The switch is in column 4: its first unit is 32, the player's last x + 5.
    assert on == [int(state.x) + 6 > 32 for state in states]


def test_observations(room):
    env = envs.make(f"{NAME}(observation=('state', 'local', 'global'), category='simple')")
    state, obs = jax.jit(env.start)(jnp.int32(0))
    one = env.levels[0]
    planes = np.asarray(obs["global"])
    for plane, letter in enumerate("#xKES"):
        np.testing.assert_array_equal(planes[..., plane] > 0, one.tiles_of(letter))
    local = np.asarray(obs["local"])[..., 0]
    assert local[22, 22] == 128
    # Below a standing player there is ground: 2 units a pixel, 3 to the feet.
    assert (local[24:27, 22] == 90).all()
    column, row = one.place_of("S")
    patch = np.asarray(obs["state"])[16 : 16 + 99].reshape(9, 11)
    assert patch[4, 5] == 0
    assert patch[5, 5] == 1
    assert obs["state"][6] == 1
    switch = np.subtract(one.place_of("K"), (column, row))
    np.testing.assert_allclose(obs["state"][10:12], switch / (24, 16), atol=0.02)
    assert state.level == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("max_steps=8", marks=pytest.mark.long),
        pytest.param("observation='graph', max_steps=8", marks=pytest.mark.long),
        "observation=('local', 'global'), max_steps=8",
    ],
)
def test_what_it_declares_holds_in_batches(arguments):
    found = conformance.check(f"{NAME}({arguments}, category='simple')", length=20)
    assert found["truncated"].any()


@pytest.mark.slow
@pytest.mark.parametrize("part", level_files.PARTS)
def test_every_shipped_level_is_solved_in_the_environment(part):
    env = envs.make(f"{NAME}(levels='{part}')")
    count, longest = len(env.levels), max(one.optimal_steps for one in env.levels)
    actions = np.ones((longest, count), np.int32)
    for i, one in enumerate(env.levels):
        actions[: one.optimal_steps, i] = [int(a) for a in one.solution]
    state, _ = jax.vmap(env.start)(jnp.arange(count))
    _, info = jax.lax.scan(
        lambda s, a: (lambda out: (out[0], out[1].info))(
            jax.vmap(env.step, (None, 0, 0))(jax.random.key(0), s, a)
        ),
        state,
        jnp.asarray(actions),
    )
    won = np.asarray(info["success"])
    for i, one in enumerate(env.levels):
        assert np.argmax(won[:, i]) == one.optimal_steps - 1
        assert won[:, i].any()
        assert not np.asarray(info["mine_contacts"])[: one.optimal_steps, i].any()


@pytest.mark.slow
def test_shipped_levels_are_as_written():
    counts = level_files.verify_dataset(level_files.SHIPPED)
    assert set(counts) == {f"{part}/{category}" for part in level_files.PARTS for category in CATEGORIES}


def test_generation_is_from_the_seed():
    first, second = generate("simple", 3), generate("simple", 3)
    assert first == second
    assert first.digest != generate("simple", 4).digest
    assert solve(first) == first.solution


@pytest.mark.slow
def test_a_category_is_chosen():
    env = envs.make(f"{NAME}(levels='test', category='mine_heavy')")
    assert {one.category for one in env.levels} == {"mine_heavy"}
    starts = {int(env.reset(jax.random.key(k))[0].level) for k in range(40)}
    assert starts == set(range(len(env.levels)))


@pytest.mark.slow
def test_pictures(room):
    state, _ = room.start(jnp.int32(1))
    picture = room.render(state)
    assert (picture.shape, picture.dtype) == ((96, 160, 3), np.uint8)
    assert picture[0, 0].tolist() == [98, 104, 116]
    assert picture[4 * 16 + 8, 4 * 16 + 8].tolist() == [208, 54, 54]
    assert picture[4 * 16 + 10, 16 + 8].tolist() == [36, 36, 44]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("levels='nowhere'", "levels (='nowhere') is no folder of levels"),
        ("category='easy'", "category (='easy') must be one of all, simple"),
        ("observation='smell'", "observation (='smell') must be one of state, local, global, graph"),
        ("observation=()", "observation (=()) must be a name, or a tuple of names"),
        ("observation=('state', 'state')", "must hold each name once"),
        ("reward='big'", "reward (='big') must be one of shaped, sparse"),
        ("max_steps=0", "max_steps (=0) must be an integer of at least 1"),
        ("level='train'", "unknown argument of jaxrl:Platformer 'level'; did you mean levels?"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        envs.make(f"{NAME}({arguments})")
    assert "\n" not in str(error.value)
