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

from jaxrl import envs
from jaxrl.envs import catalogue, suites
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
        ("balls", "ruleset (='balls') must be 'FILE:INDEX'"),
        ("balls:-1", "ruleset (='balls:-1') must be 'FILE:INDEX'"),
        ("balls:2", "balls has 2 rulesets, from 0 on"),
        ("bals:0", "bals is no file, and no benchmark of the suite (trivial-21k,"),
        ("small-1m:0", "small_1m_v3 is not there; xminigrid.load_benchmark('small-1m') downloads it"),
        ("text:0", "text is no benchmark: Invalid data stream"),
        ("empty:0", "empty is no benchmark: 'goals'"),
        ("harm:0", "harm is no benchmark: it holds posix.system, which is no array"),
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
