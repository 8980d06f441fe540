"""`jaxrl:memory/`: each task beside its rules in plain Python, with the same draws and actions."""

from __future__ import annotations

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs import native
from jaxrl.envs.base import Box, Discrete
from jaxrl.envs.native import random_words
from jaxrl.envs.native.memory import card_games, labyrinth
from tests.envs.native import conformance, popgym_package
from tests.envs.native import memory_rules as rules

# Of random play, in which what follows depends on every step before.
_UNSTABLE = ("CartPole", "Pendulum")
NAMES = [name for name in native.names() if name.startswith("memory/")]
FAST = [
    "RepeatFirstEasy",
    "RepeatPreviousEasy",
    "AutoencodeEasy",
    "CountRecallEasy",
    "HigherLowerEasy",
    "ConcentrationEasy",
    "MineSweeperEasy",
    "BattleshipEasy",
    "MultiarmedBanditEasy",
    "LabyrinthEscape(maze_dims=(6, 6), episode_length=200)",
    "LabyrinthExplore(maze_dims=(6, 6), episode_length=200)",
    "PositionOnlyCartPole(max_episode_length=20)",
    "VelocityOnlyCartPole(max_episode_length=20)",
    "PositionOnlyPendulumHard",
    "TMaze(length=5)",
]
SLOW = [name.removeprefix("memory/") for name in NAMES if re.search("(Easy|Medium|Hard)$", name)]
SLOW = [name for name in SLOW if name not in FAST and "Noisy" not in name]
# Sizes between those of the others, by the same code, and mazes so large that a walk takes half a minute;
# smaller ones are fast.
LONG = [name for name in SLOW if name.endswith("Medium") or re.fullmatch("Labyrinth.*(Easy|Hard)", name)]
BY_COST = [
    *FAST[:2],
    *(pytest.param(name, marks=pytest.mark.slow) for name in FAST[2:]),
    *(pytest.param(name, marks=pytest.mark.long if name in LONG else pytest.mark.slow) for name in SLOW),
]


@functools.cache
def program(name):
    """The environment; and what a batch of episodes with these keys and actions [B, T, ...] is."""
    env = envs.make(f"jaxrl:memory/{name}")

    def episode(key, actions):
        def step(state, inputs):
            t, action = inputs
            state, found = env.step(jax.random.fold_in(key, t), state, action)
            return state, (state, found.obs, found.reward, found.terminated, found.truncated)

        start, first = env.reset(jax.random.fold_in(key, 2**20))
        return start, first, jax.lax.scan(step, start, (jnp.arange(len(actions)), actions))[1]

    return env, jax.jit(jax.vmap(episode))


def play(name, actions, seed=0):
    """Episodes as dicts: the draws, the first observation, and those, rewards and ends of each step."""
    _, run = program(name)
    keys = jax.random.split(jax.random.key(seed), len(actions))
    start, first, steps = jax.tree.map(np.asarray, run(keys, jnp.asarray(actions)))
    for b, played in enumerate(actions):
        begin, (states, *outcome) = jax.tree.map(lambda x, b=b: x[b], (start, steps))
        yield (
            draws(name, begin, states, first[b], outcome[0]),
            first[b],
            outcome,
            played,
        )


def random_actions(name, batch=None):
    """[B, T, ...], evenly drawn; of whole episodes, some thousand steps."""
    spec = program(name)[0].spec
    shape = (
        batch or max(16 if "CartPole" in name else 4, 3000 // spec.max_episode_steps),
        spec.max_episode_steps,
    )
    rng, space = np.random.default_rng(5), spec.action_space
    if isinstance(space, Box):
        return rng.uniform(space.low, space.high, (*shape, len(space.low))).astype(np.float32)
    return rng.integers(space.n if isinstance(space, Discrete) else space.nvec, size=(*shape, *space.shape))


def draws(name, start, states, first, seen):
    """The chance decisions of an episode, from its states and observations."""
    family = re.sub(r"(Easy|Medium|Hard)?(\(.*)?$", "", name)
    shown = np.concatenate([first[None], seen]) if first.shape == seen.shape[1:] else None
    match family:
        case "RepeatFirst" | "RepeatPrevious" | "HigherLower":
            return (shown.tolist(),)
        case "Autoencode":
            return (shown[: len(shown) // 2, 1].tolist(),)
        case "CountRecall":
            return tuple(shown.T.tolist())
        case "Concentration":
            kinds, left = states.kinds[-1].copy(), states.left[-1]
            kinds[kinds < 0] = np.repeat(np.arange(len(left)), left)
            return kinds.tolist(), len(left)
        case "MineSweeper":
            return (start.mines,)
        case "Battleship":
            return (start.ships,)
        case "MultiarmedBandit":
            return (seen,)
        case "LabyrinthEscape":
            return (start.maze,)
        case "LabyrinthExplore":
            return (start.labyrinth.maze,)
        case "TMaze":
            return (start.north,)
        case _:
            return (start.body,) if "CartPole" in family else (start.angle, start.speed)


def reference(name, found):
    """The rules of a task with these draws."""
    env, _ = program(name)
    limit = env.spec.max_episode_steps
    match re.sub(r"(Easy|Medium|Hard)?(\(.*)?$", "", name):
        case "RepeatPrevious":
            return rules.RepeatPrevious(*found, k={103: 32, 155: 64}.get(limit, 4))
        case "LabyrinthEscape" | "LabyrinthExplore" as family:
            return rules.Labyrinth(*found, family == "LabyrinthExplore", limit + 1)
        case "PositionOnlyCartPole" | "VelocityOnlyCartPole" as family:
            return rules.CartPole(*found, limit, family == "VelocityOnlyCartPole")
        case "PositionOnlyPendulum":
            return rules.Pendulum(*found, limit)
        case "TMaze":
            return rules.TMaze(*found, (limit - 10) // 2, limit)
        case family:
            return getattr(rules, family)(*found)


def assert_same(first, outcomes, actions, expected):
    """Steps `expected` until it ends, which has to look the same; its return, and how it ended."""
    seen, gains, ends = [expected.observe()], [], []
    for action in actions:
        obs, reward, *end = expected.step(action)
        seen.append(obs)
        gains.append(reward)
        ends.append(end)
        if any(end):
            break
    assert any(ends[-1])
    n = len(gains)
    obs, rewards, terminated, truncated = (x[:n] for x in outcomes)
    # Bodies in float32 beside float64: unstable, so that a difference grows.
    inexact = ((30, 2e-4), (n + 1, 2e-2)) if obs.dtype == np.float32 else ((n + 1, 1e-6),)
    for length, tolerance in inexact:
        found = np.concatenate([first[None], obs])[:length]
        np.testing.assert_allclose(found, np.array(seen)[:length], atol=tolerance)
        np.testing.assert_allclose(rewards[:length], gains[:length], rtol=1e-5, atol=tolerance / 100)
    np.testing.assert_array_equal(np.stack([terminated, truncated], 1), ends)
    return sum(gains), *ends[-1]


@pytest.mark.parametrize("name", BY_COST)
def test_task_follows_its_rules(name):
    actions = random_actions(name)
    returns, planned = [], []
    for found, first, outcomes, played in play(name, actions):
        returns.append(assert_same(first, outcomes, played, reference(name, found))[0])
        planned.append(plan(name, found, played))
    if not re.match("Concentration|Multiarmed", name) and not any(part in name for part in _UNSTABLE):
        good = [
            assert_same(first, outcomes, played, reference(name, found))
            for found, first, outcomes, played in play(name, np.stack(planned))
        ]
        best = np.array([total for total, _, _ in good])
        assert best.mean() > np.mean(returns)
        if not re.match("HigherLower|Labyrinth|TMaze", name):
            np.testing.assert_allclose(best, 1, atol=1e-5)
        assert all(ends for _, ends, _ in good)


def plan(name, found, played):
    """The actions of one who knows the draws, as many as were `played`."""
    expected, actions = reference(name, found), played.copy()
    for t in range(len(actions)):
        actions[t] = expected.answer()
        if any(expected.step(actions[t])[2:]):
            break
    return actions


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST[:-1], *SLOW])
def test_task_follows_popgym(name):
    """The package itself, where it is installed, with the same draws and actions."""
    pytest.importorskip("popgym")
    level = name if "(" not in name else None
    if level is None:
        name = level = re.sub(r"\(.*", "Easy", name)
    steps = 0
    for found, first, outcomes, played in play(name, random_actions(name)):
        expected = popgym_package.Episode(level, found)
        assert_same(first, outcomes, played, expected)
        steps += expected.steps
    assert steps > 300


def test_names_and_levels():
    assert len(NAMES) == 1 + 16 * 4
    for name in NAMES:
        env = envs.make(f"jaxrl:{name}")
        assert env.spec.name == f"jaxrl:{name}"
        assert not env.spec.has_action_mask
    assert envs.make("jaxrl:memory/RepeatPrevious(num_decks=2, k=32)").spec.max_episode_steps == 103
    assert envs.make("jaxrl:memory/RepeatPrevious(num_decks=1)").spec.name == "jaxrl:memory/RepeatPrevious"


def test_last_pair_of_concentration_terminates():
    env = envs.make("jaxrl:memory/ConcentrationEasy")
    state, _ = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    known = np.arange(52) % 2
    for first, second, ends in ((50, 51, False), (49, 51, True)):
        up = np.ones(52, bool)
        up[[first, second]] = False
        at = state.replace(kinds=jnp.asarray(known, jnp.int32), up=jnp.asarray(up), time=jnp.int32(99))
        at, found = step(jax.random.key(1), at, jnp.int32(first))
        assert (found.reward, found.terminated) == (0, False)
        at, found = step(jax.random.key(1), at, jnp.int32(second))
        assert found.terminated == ends
        np.testing.assert_allclose(found.reward, 1 / 26 if ends else -2 / 104, rtol=1e-6)
        np.testing.assert_array_equal(found.obs, known)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NoisyPositionOnlyCartPoleMedium", "NoisyPositionOnlyPendulumMedium"])
def test_noise(name):
    """Its size, and that it is clipped; the rest is the task without noise."""
    _, run = program(name)
    actions = random_actions(name, 16)
    keys = jax.random.split(jax.random.key(0), 16)
    _, first, (states, obs, *_) = jax.tree.map(np.asarray, run(keys, jnp.asarray(actions)))
    if "CartPole" in name:
        true, high = states.body[:, :9, [0, 2]], np.array([4.8, 2 * np.radians(12)], np.float32)
        obs = obs[:, :9]
    else:
        true, high = np.stack([np.cos(states.angle), np.sin(states.angle)], -1), np.ones(2, np.float32)
    assert (np.abs(obs) <= high).all()
    free = np.abs(true) + 0.6 < high
    noise = (obs - true)[free]
    assert len(noise) > 100
    assert abs(noise.mean()) < 0.05
    assert 0.15 < noise.std() < 0.25
    assert len(np.unique(first)) > 20


@pytest.mark.slow
def test_draws_are_even():
    """Chances of single draws, within five standard deviations."""
    n = 4000
    words = jax.random.bits(jax.random.key(3), (n, 40), jnp.uint32)

    @jax.jit
    def draw(words):
        kind = jax.vmap(lambda word: card_games.deal(word, jnp.array([1, 0, 3, 4])))(words[:, 0])[0]
        chosen = jax.vmap(lambda word: random_words.choose(word, jnp.array([True, False, True, True])))(
            words[:, 1]
        )
        maze = jax.vmap(lambda row: labyrinth.hunt_and_kill(row, 3))(words[:, 3:])
        start, goal = jax.vmap(lambda row: labyrinth.entrances(row, 3))(words[:, :3])
        return kind, chosen, maze, start, goal

    kind, chosen, maze, start, goal = map(np.asarray, draw(words))
    _even(kind, {0: 1 / 8, 2: 3 / 8, 3: 4 / 8})
    _even(chosen, {0: 1 / 3, 2: 1 / 3, 3: 1 / 3})
    assert ((maze == 0).sum(axis=(1, 2)) == 2 * 9 - 1).all()
    assert (maze[:, 1::2, 1::2] == 0).all()
    for grid in maze[:50]:
        assert len(_reached(grid)) == 17
    # Of mazes turned by 90 degrees, each is as likely.
    passage = maze[:, 1, 2] == 0
    for other in (maze[:, 2, 5] == 0, maze[:, 5, 4] == 0, maze[:, 4, 1] == 0, maze[:, 2, 1] == 0):
        assert abs(passage.mean() - other.mean()) < 5 * np.sqrt(0.5 / n)
    assert ((goal - start) ** 2).max(axis=1).min() == 36
    _even(start[:, 0] * 7 + start[:, 1], dict.fromkeys((1, 3, 5, 43, 45, 47, 7, 21, 35, 13, 27, 41), 1 / 12))


def _reached(grid):
    places, found = [(1, 1)], {(1, 1)}
    while places:
        y, x = places.pop()
        for there in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if grid[there] == 0 and there not in found:
                found.add(there)
                places.append(there)
    return found


def _even(values, chances):
    assert set(np.unique(values)) == set(chances)
    for value, p in chances.items():
        assert abs((values == value).mean() - p) < 5 * np.sqrt(p * (1 - p) / len(values)), value


def test_boards_are_even():
    """Each square has a mine as often as any other; ships cover the middle more, alike in all quarters."""
    keys = jax.random.split(jax.random.key(0), 4000)
    env = envs.make("jaxrl:memory/MineSweeperEasy")
    mines = np.asarray(jax.jit(jax.vmap(lambda key: env.reset(key)[0].mines))(keys))
    assert (mines.sum(axis=(1, 2)) == 2).all()
    assert np.abs(mines.mean(axis=0) - 2 / 16).max() < 5 * np.sqrt(2 / 16 * 14 / 16 / 4000)
    env = envs.make("jaxrl:memory/Battleship(board_size=4, ship_sizes=(3,))")
    ships = np.asarray(jax.jit(jax.vmap(lambda key: env.reset(key)[0].ships))(keys))
    boards = np.unique(ships.reshape(-1, 16), axis=0, return_counts=True)[1]
    assert len(boards) == 16
    assert np.abs(boards / 4000 - 1 / 16).max() < 5 * np.sqrt(1 / 16 / 4000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["RepeatPreviousEasy", "BattleshipEasy", "LabyrinthEscape(episode_length=60)"]
)
def test_task_is_an_environment_as_any(name):
    conformance.check(f"jaxrl:memory/{name}", 70)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("RepeatPrevious(k=52)", "k (=52) must be an integer from 1 to 51"),
        ("RepeatFirst(num_decks=0)", "num_decks (=0) must be an integer of at least 1"),
        ("RepeatFirstEasy(num_decks=2)", "unknown argument of jaxrl:memory/RepeatFirstEasy 'num_decks'"),
        ("CountRecall(deck_type='aces')", "deck_type (='aces') must be one of colors, suits, ranks"),
        ("Battleship(board_size=4, ship_sizes=(4, 4, 4))", "must cover half of the board at most, 8 squares"),
        ("Battleship(ship_sizes=(11,))", "must be an integer from 1 to 10"),
        ("LabyrinthEscape(maze_dims=(10, 12))", "maze_dims (=(10, 12)) must be an even number twice"),
        ("PositionOnlyPendulum(max_episode_length=0)", "max_episode_length (=0) must be an integer"),
        ("NoisyPositionOnlyCartPole(noise_sigma=-1)", "noise_sigma (=-1) must be a number from 0 to 100"),
        ("TMaze(length=0)", "length (=0) must be an integer of at least 1"),
    ],
)
def test_bad_argument_is_one_line(name, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        envs.make(f"jaxrl:memory/{name}")
    assert "jaxrl:memory/" in str(error.value)
    assert "\n" not in str(error.value)


def test_rules_cover_every_task():
    tasks = {name.removeprefix("memory/") for name in NAMES if not re.search("(Easy|Medium|Hard)$", name)}
    tested = {re.sub(r"(Easy|Medium|Hard)?(\(.*)?$", "", name) for name in FAST}
    assert tested == {name for name in tasks if "Noisy" not in name}
    assert inspect.isclass(rules.TMaze)
