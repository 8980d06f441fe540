"""Suites written in JAX: adapters against a loop over the bare suite, which restarts by hand.

Each needs its package (`pip install -e '.[suites]'`) and is skipped without it:

    python -m pytest -n 0 -m slow tests/envs/suites
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.adapters.suite import suite_rules
from jaxrl.envs.base import Box, Dict, Discrete
from jaxrl.envs.behaviour import random_action
from jaxrl.envs.checks import check_types
from jaxrl.envs.vector import VectorEnv
from jaxrl.parallel.sharding import SHARDED, Topology
from tests.envs.suites.bare_suites import CASES

pytestmark = [
    pytest.mark.slow,
    # What a suite imports warns about what it imports.
    pytest.mark.filterwarnings("ignore"),
]

B = 2
PACKAGES = {"playground": "mujoco_playground"}  # whose name is not that of the suite
RESTART = 0x52455345  # what `VectorEnv` folds into the key of a step that starts an episode


def keys_of(keys_B, t):
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys_B, t)


def adapter_steps(env, length, keys_B):
    """[B, T, ...] of what the batch does with random actions, under vmap."""
    batch = VectorEnv(env)

    def step(loop, t):
        state, obs = loop
        keys = keys_of(keys_B, t)
        action = jax.vmap(lambda key, s: random_action(env, jax.random.fold_in(key, 7), s))(keys, state.env)
        mask = batch.action_mask(state)
        state, found = batch.step(keys, state, action)
        names = ("reward", "terminated", "truncated", "final_obs", "info")
        record = {"seen": obs, "action": action, **{name: getattr(found, name) for name in names}}
        return (state, found.obs), record | ({} if mask is None else {"mask": mask})

    records = jax.lax.scan(step, batch.reset(keys_B), jnp.arange(length))[1]
    return jax.tree.map(lambda x: x.swapaxes(0, 1), records)


@pytest.mark.parametrize("suite", sorted(CASES))
def test_adapter_does_what_the_bare_suite_does(suite):
    pytest.importorskip(PACKAGES.get(suite, suite))
    name, make_bare, length = CASES[suite]
    env = envs.make(name)
    assert not check_types(name, env)
    assert hash(env.spec) == hash(envs.make(env.spec.name).spec)
    keys_B = jax.random.split(jax.random.key(1), B)
    # Under jit, shard_map and vmap.
    program = Topology.of(1).shard(lambda keys: adapter_steps(env, length, keys), (SHARDED,), SHARDED)
    found = jax.tree.map(np.asarray, program(keys_B))
    terminated, truncated = found["terminated"], found["truncated"]
    assert (terminated | truncated).any(axis=1).all(), "no episode ended"
    with suite_rules():
        bare = make_bare()
        # Keys of jax to the game that draws with them, raw ones to the others.
        raw = (lambda key: key) if suite == "pgx" else jax.random.key_data
        reset, step = jax.jit(bare.reset), jax.jit(bare.step)
        for b in range(B):
            state, obs = reset(raw(keys_B[b]))
            for t in range(length):
                row = jax.tree.map(lambda x, b=b, t=t: x[b, t], found)
                same(row["seen"], obs)
                if bare.mask is not None:
                    np.testing.assert_array_equal(row["mask"], np.ravel(bare.mask(state)))
                key = jax.random.fold_in(keys_B[b], t)
                state, obs, reward, ended, cut = step(raw(key), state, row["action"])
                same(row["final_obs"], obs)
                np.testing.assert_allclose(row["reward"], reward, rtol=1e-5, atol=1e-6)
                assert (bool(row["terminated"]), bool(row["truncated"])) == (bool(ended), bool(cut)), t
                if row["terminated"] or row["truncated"]:
                    state, obs = reset(raw(jax.random.fold_in(key, RESTART)))
    for report in env.spec.reports:
        assert np.isfinite(found["info"][report.name]).all()


def same(left, right):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), left, right)


@pytest.mark.parametrize(
    ("name", "observation", "actions", "limit", "masked"),
    [
        ("brax:ant(backend='spring')", Box.of(-math.inf, math.inf, (27,)), 8, 1000, False),
        ("craftax:Craftax-Classic-Symbolic-v1", Box.of(0, 1, (1345,)), 17, 10_000, False),
        ("craftax:Craftax-Symbolic-v1", Box.of(0, 1, (8268,)), 43, 100_000, False),
        ("craftax:Craftax-Symbolic-v1(observation='parts')", None, 43, 100_000, False),
        ("jumanji:Minesweeper-v0(keys=('board',))", None, 100, None, True),
        ("jumanji:Snake-v1", None, 4, 4000, True),
        ("navix:Navix-DoorKey-5x5-v0", Box.of(0, 11, (5, 5, 3), np.uint8), 7, 100, False),
        ("pgx:minatar-breakout", Box.of(0, 1, (10, 10, 4)), 3, None, True),
        ("playground:CartpoleSwingup", Box.of(-math.inf, math.inf, (5,)), 1, 1000, False),
        ("popgym_arcade:AutoEncodeEasy(scale=8)", Box.of(0, 255, (16, 16, 3), np.uint8), 5, 261, False),
        ("popgym_arcade:CountRecallEasy(scale=4)", Box.of(0, 255, (32, 32, 3), np.uint8), 5, 126, False),
        ("popgym_arcade:TetrisHard", Box.of(0, 255, (128, 128, 3), np.uint8), 5, 3000, False),
        ("pgx:tic_tac_toe", Box.of(0, 1, (3, 3, 2)), 9, None, True),
        ("xminigrid:MiniGrid-MemoryS8", Box.of(0, 14, (3, 3, 2), np.uint8), 6, None, False),
    ],
)
def test_specs(name, observation, actions, limit, masked):
    suite = name.partition(":")[0]
    pytest.importorskip(PACKAGES.get(suite, suite))
    spec = envs.make(name).spec
    if observation is None:
        assert isinstance(spec.observation_space, Dict)
    else:
        assert spec.observation_space == observation
    space = spec.action_space
    assert (space.n if isinstance(space, Discrete) else space.shape[0]) == actions
    assert spec.has_action_mask is masked
    if limit is not None:
        assert spec.max_episode_steps == limit


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("brax:ant(backend='none')", "refuses"),
        ("craftax:Craftax-Symbolic-v2", "did you mean craftax:Craftax-Symbolic-v1"),
        ("craftax:Craftax-Symbolic-v1(max_steps=3)", "unknown argument of craftax"),
        ("craftax:Craftax-Symbolic-v1(observation='smell')", "unknown observation of craftax"),
        ("craftax:Craftax-Pixels-v1(observation='parts')", "is of symbolic observations alone"),
        ("jumanji:Snake-v1(keys=('snake',))", "unknown observation of jumanji:Snake-v1"),
        ("jumanji:Snake-v1(size=3)", "refuses"),
        ("navix:Navix-DoorKey-5x5-v0(observation='smell')", "unknown observation of navix"),
        ("pgx:hex(opponent='nobody')", "must be of the form path.to.module:name"),
        ("playground:CartpoleSwingup(weight=3)", "unknown argument of playground:CartpoleSwingup 'weight'"),
        ("playground:CartpoleSwingup(impl='none')", "refuses {'impl': 'none'}"),
        ("popgym_arcade:CountRecallEasy(obs_size=64)", "refuses"),
        ("popgym_arcade:CountRecallEasy(scale=3)", "scale (=3) must divide 128 and 128"),
        ("xminigrid:MiniGrid-MemoryS8(depth=3)", "unknown argument of xminigrid"),
    ],
)
def test_wrong_name(name, message):
    suite = name.partition(":")[0]
    pytest.importorskip(PACKAGES.get(suite, suite))
    with pytest.raises(ValueError, match=r"\S") as caught:
        envs.make(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["categorical", "symbolic"])
def test_numbers_of_navix_lie_within_their_bounds(kind):
    """Categories from -1, a wall, to 10, the player; and no key of 254, as navix 0.7.4 has it."""
    pytest.importorskip("navix")
    env = envs.make(f"navix:Navix-KeyCorridorS3R1-v0(observation={kind!r})")
    obs = np.asarray(jax.jit(env.reset)(jax.random.key(0))[1])
    space = env.spec.observation_space
    assert (obs.min(), 10) == (min(space.low), obs[..., 0].max() if kind == "symbolic" else obs.max())
    assert obs.max() <= max(space.high)


def test_the_map_of_craftax_is_what_lies_around_the_player():
    pytest.importorskip("craftax")
    env = envs.make("craftax:Craftax-Classic-Symbolic-v1(observation='parts')")
    whole = envs.make("craftax:Craftax-Classic-Symbolic-v1")
    spaces = (("map", Box.of(0, 1, (7, 9, 21))), ("rest", Box.of(0, 1, (22,))))
    assert env.spec.observation_space == Dict(spaces)
    assert envs.make(env.spec.name).spec == env.spec
    key = jax.random.key(3)
    state, found = jax.jit(env.step)(key, jax.jit(env.reset)(key)[0], jnp.int32(2))
    row, column = (int(x) for x in state.player_position)
    around = np.asarray(state.map)[row - 3 : row + 4, column - 4 : column + 5]
    np.testing.assert_array_equal(np.asarray(found.obs["map"])[..., :17].argmax(-1), around)
    flat = np.concatenate([np.ravel(found.obs["map"]), found.obs["rest"]])
    np.testing.assert_array_equal(flat, jax.jit(whole.step)(key, jax.jit(whole.reset)(key)[0], 2)[1].obs)


@pytest.mark.parametrize("game", ["AutoEncode", "CartPole", "MineSweeper"])
def test_games_of_popgym_arcade_end_at_their_limit(game):
    """With one flag or two, also those that look at their limit before they count the step."""
    pytest.importorskip("popgym_arcade")
    env = envs.make(f"popgym_arcade:{game}Easy(scale=8)")
    limit = env.spec.max_episode_steps
    keys_B = jax.random.split(jax.random.key(2), 8)

    def ends(key):
        """Of one episode of random actions: its length, and how it ended."""

        def step(loop):
            state, t, _ = loop
            now = jax.random.fold_in(key, t)
            action = jax.random.randint(now, (), 0, env.spec.action_space.n)
            state, found = env.step(now, state, action)
            return state, t + 1, jnp.stack([found.terminated, found.truncated])

        loop = (env.reset(key)[0], jnp.int32(0), jnp.zeros(2, bool))
        _, length, flags = jax.lax.while_loop(lambda x: ~x[2].any() & (x[1] < limit + 5), step, loop)
        return length, flags

    length, flags = jax.jit(jax.vmap(ends))(keys_B)
    assert (flags.sum(axis=1) == 1).all()
    assert length.max() <= limit
    # A game that looks too late may still end in time.
    np.testing.assert_array_equal(flags[:, 1], length >= limit - 1)
