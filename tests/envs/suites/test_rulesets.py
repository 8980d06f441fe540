"""XLand's rulesets from the suite's own files, against the suite's own functions."""

from __future__ import annotations

import bz2
import os
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import envs
from jaxrl.envs import catalogue, suites
from jaxrl.envs.adapters import xminigrid_rulesets
from jaxrl.envs.adapters.suite import suite_rules

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NAME = "xminigrid:XLand-MiniGrid-R2-9x9"
RED, GREEN = 3, 4  # colours; 3 is also a ball, 5 a pyramid


@pytest.fixture
def benchmark(tmp_path):
    """A file as the suite's generator writes it: stand beside a ball, red in ruleset 0 and green in 1."""
    package = pytest.importorskip("xminigrid.benchmarks")
    from xminigrid.core import goals, rules
    from xminigrid.core.constants import Tiles

    balls = [jnp.array([Tiles.BALL, colour], jnp.uint8) for colour in (RED, GREEN)]
    with suite_rules():
        content = {
            "generation_config": {"random_seed": 42},
            "goals": jnp.stack([goals.AgentNearGoal(tile=ball).encode() for ball in balls]),
            "rules": jnp.stack([rules.EmptyRule().encode()[None] for _ in balls]),
            "init_tiles": jnp.stack([ball[None] for ball in balls]),
            "num_rules": jnp.zeros(2, int),
        }
    file = tmp_path / "balls"
    package.save_bz2_pickle(content, str(file))
    return file


@pytest.mark.parametrize("index", [0, 1])
def test_an_episode_is_the_suites_own(benchmark, index):
    import xminigrid
    from xminigrid.benchmarks import load_benchmark_from_path

    env = envs.make(f"{NAME}(ruleset='{benchmark}:{index}')")
    assert envs.make(env.spec.name).spec == env.spec
    limit = env.spec.max_episode_steps
    assert limit == 3 * 9 * 9
    bare, params = xminigrid.make("XLand-MiniGrid-R2-9x9")
    params = params.replace(ruleset=load_benchmark_from_path(str(benchmark)).get_ruleset(index))
    key = jax.random.key(5)
    with suite_rules():
        theirs = jax.jit(bare.reset)(params, jax.random.key_data(key))
        state, obs = jax.jit(env.reset)(key)
        np.testing.assert_array_equal(obs, theirs.observation)
        grid = np.asarray(theirs.state.grid)
        assert (grid[..., 1][grid[..., 0] == 3] == (RED, GREEN)[index]).all()
        step, their_step = jax.jit(env.step), jax.jit(bare.step)
        for t in range(1, limit + 1):
            action = jax.random.randint(jax.random.fold_in(key, t), (), 0, 6)
            theirs = their_step(params, theirs, action)
            state, ours = step(key, state, action)
            np.testing.assert_array_equal(ours.obs, theirs.observation)
            assert ours.reward == theirs.reward
            if ours.terminated:
                break
    # The paper's reward (Nikulin et al. 2024): 1 - 0.9 t / limit.
    assert ours.reward == pytest.approx(1 - 0.9 * t / limit)
    assert ours.info["success"]


@pytest.mark.parametrize("grid", ["R1-9x9", "R4-9x9", "R9-16x16"])
@pytest.mark.parametrize(
    "sizes", [{"view_size": 3, "max_steps": 7}, {"view_size": 3}, {"height": 19, "width": 19}]
)
def test_sizes_keep_the_kind_of_grid(benchmark, grid, sizes):
    import xminigrid

    arguments = "".join(f", {name}={x}" for name, x in sizes.items())
    env = envs.make(f"xminigrid:XLand-MiniGrid-{grid}(ruleset='{benchmark}:0'{arguments})")
    bare, params = xminigrid.make(f"XLand-MiniGrid-{grid}", **sizes)
    with suite_rules():
        params = params.replace(
            ruleset=xminigrid.benchmarks.load_benchmark_from_path(str(benchmark)).get_ruleset(0)
        )
        theirs = bare.reset(params, jax.random.PRNGKey(1)).state.grid
    np.testing.assert_array_equal(env.reset(jax.random.key(1))[0].grid, theirs)
    # The suite's own default: three times the area, whatever the view.
    height, width = theirs.shape[:2]
    assert env.spec.max_episode_steps == sizes.get("max_steps", 3 * height * width)


class Harm:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def test_what_is_no_ruleset_is_one_line(benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("xminigrid.benchmarks.DATA_PATH", str(tmp_path / "nowhere"))
    (tmp_path / "text").write_text("goals")
    for name, content in (("harm", {"goals": Harm()}), ("empty", {})):
        (tmp_path / name).write_bytes(bz2.compress(pickle.dumps(content)))
    for given, message in (
        ("", "ruleset (='') must be 'FILE:INDEX', or 'NAME:INDEX'"),
        ("balls:-1", "balls:-1 is no file"),
        ("balls:2", "balls has 2 rulesets, from 0 on"),
        ("balls:1-2", "balls has 2 rulesets, from 0 on"),
        ("balls:1-0", "the last index must not be below the first"),
        ("objects:near:4096", "objects:near has 4096 rulesets, from 0 on"),
        ("objects:far", "KIND (='far') of objects:KIND must be near, hold, place or mixed"),
        ("bals:0", "bals is no file, and no benchmark of the suite (trivial-21k,"),
        ("small-1m:0", "small_1m_v3 is not there; xminigrid.load_benchmark('small-1m') downloads it"),
        ("text:0", "text is no benchmark: Invalid data stream"),
        ("empty:0", "empty is no benchmark: 'goals'"),
        ("harm", "harm is no benchmark: it holds posix.system, which is no array"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            envs.make(f"{NAME}(ruleset={given!r})")
        assert str(caught.value).startswith(NAME)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "harmed").exists()
    with pytest.raises(ValueError, match="has a goal of its own"):
        envs.make("xminigrid:MiniGrid-Empty-5x5(ruleset='balls:0')")


def test_what_never_rewards_is_not_made_without(tmp_path):
    pytest.importorskip("xminigrid")
    names = [name for name in catalogue.listed(suites.suite_of("xminigrid")) if name.startswith("XLand")]
    assert len(names) > 20
    for name in names:
        with pytest.raises(ValueError, match="has no goal and would never reward; ruleset must be"):
            envs.make(f"xminigrid:{name}")


def test_several_rulesets_are_tasks(benchmark):
    env = envs.make(f"{NAME}(ruleset='{benchmark}')")
    assert envs.make(env.spec.name).spec == env.spec
    jaxrl.check_env(env)
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))
    keys = jax.random.split(jax.random.key(5), 30)

    def colours(state):
        """int[30], the colour of the only ball of each grid; the goal is about that very ball."""
        grid = np.asarray(state.grid)
        assert ((grid[..., 0] == 3).sum((1, 2)) == 1).all()
        found = np.where(grid[..., 0] == 3, grid[..., 1], 0).sum((1, 2))
        np.testing.assert_array_equal(state.goal_encoding[:, 2], found)
        return found

    for index, colour in enumerate((RED, GREEN)):
        state, obs = reset(keys, {"ruleset": jnp.int32(index)})
        assert (colours(state) == colour).all()
        alone = envs.make(f"{NAME}(ruleset='{benchmark}:{index}')")
        assert alone.spec.task_space is None
        np.testing.assert_array_equal(obs, jax.jit(jax.vmap(alone.reset))(keys)[1])
    sampled = colours(reset(keys, env.default_task)[0])
    assert set(sampled) == {RED, GREEN}
    ranged = envs.make(f"{NAME}(ruleset='{benchmark}:1-1')")
    state, _ = jax.jit(jax.vmap(ranged.reset, in_axes=(0, None)))(keys, ranged.draw_task(keys[0]))
    assert (colours(state) == GREEN).all()


def test_ranked_objects_are_rewarded_by_their_rank():
    pytest.importorskip("xminigrid")
    count = xminigrid_rulesets.COUNT
    found = xminigrid_rulesets.generate("here", "hold-3-ranked")
    goals = [tuple(goal) for goal in found["goals"][:, 1:3]]
    shares = sorted((goals.count(goal) / count for goal in set(goals)), reverse=True)
    # The deviation of a share of 4,096 is at most 0.008.
    np.testing.assert_allclose(shares, [1 / 2, 1 / 3, 1 / 6], atol=0.03)
    even = xminigrid_rulesets.generate("here", "hold-3")
    goals = [tuple(goal) for goal in even["goals"][:, 1:3]]
    np.testing.assert_allclose([goals.count(goal) / count for goal in set(goals)], 1 / 3, atol=0.03)
    for kind in ("hold-2", "hold-61", "hold-", "hold-x", "-3", "ranked"):
        with pytest.raises(ValueError, match="here: KIND"):
            xminigrid_rulesets.generate("here", kind)


@pytest.mark.parametrize("kind", ["near", "hold", "place", "mixed", "hold-60-ranked"])
def test_generated_rulesets_are_about_objects_that_are_there(kind):
    pytest.importorskip("xminigrid")
    found = xminigrid_rulesets.generate("here", kind)
    goals, tiles = found["goals"], found["init_tiles"]
    # `xminigrid.core.goals.check_goal`: 1 to hold, 3 to be near, 4 to put two objects side by side.
    numbers = {"near": [3], "hold": [1], "place": [4], "mixed": [1, 3, 4]}[kind.partition("-")[0]]
    assert sorted(set(goals[:, 0])) == numbers
    np.testing.assert_array_equal(goals[:, 1:3], tiles[:, 0])
    placed = goals[:, 0] == 4
    np.testing.assert_array_equal(goals[placed, 3:], tiles[placed, 1])
    assert not goals[~placed, 3:].any()
    assert not found["rules"].any()
    assert all(len({tuple(tile) for tile in row}) == 3 for row in tiles)
    assert len(np.unique(tiles.reshape(len(tiles), -1), axis=0)) > 4000
    if kind == "mixed":
        jaxrl.check_env(f"{NAME}(ruleset='objects:{kind}', max_steps=20)")


def test_picking_up_the_rewarded_object_and_no_other_ends_a_trial():
    """The agent stands before each object in turn."""
    pytest.importorskip("xminigrid")
    env = envs.make(f"{NAME}(ruleset='objects:hold')", ["trials(count=2)"])
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    found = xminigrid_rulesets.generate("here", "hold")
    tiles = np.asarray(state.env.goal_encoding)[1:3]
    row = np.flatnonzero((found["goals"][:, 1:3] == tiles).all(1))
    assert len(row)
    grid = np.asarray(state.env.grid)
    step = jax.jit(env.step)
    ends = {}
    for y, x in np.argwhere(np.isin(grid[..., 0], (3, 4, 5, 7, 11, 12))):
        # Beside it, wherever that is: a picked up object is the one in front.
        agent = state.env.agent.replace(position=jnp.array([y + 1, x]), direction=jnp.asarray(0))
        placed = state.replace(env=state.env.replace(agent=agent))
        after, timestep = step(jax.random.key(1), placed, jnp.int32(3))
        ends[tuple(grid[y, x])] = (int(after.trial), float(timestep.reward), bool(timestep.terminated))
    limit = env.spec.max_episode_steps // 2
    right = ends.pop(tuple(tiles))
    assert right == (1, pytest.approx(1 - 0.9 / limit), False)
    assert list(ends.values()) == [(0, 0.0, False)] * 2
