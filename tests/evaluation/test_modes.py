"""Evaluations that play greedily and sampled: the same episodes as alone, and which of the two decides."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl import algorithms
from jaxrl.config import ConfigError, resolve
from jaxrl.envs import registry
from jaxrl.envs.vector import VectorEnv
from jaxrl.evaluation import evaluator
from jaxrl.evaluation.evaluator import DeviceEvaluator
from jaxrl.evaluation.result import RecentReturns, Result, add_means, deciding_mode, modes_of
from jaxrl.metrics.reduction import Interval
from jaxrl.parallel.sharding import Topology
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.checkpoint import Checkpointer
from jaxrl.training.progress import Progress
from jaxrl.training.trainer import Trainer
from tests.algorithms.tiny import config_fields
from tests.compiled_programs import tiny_agent
from tests.inference.runs import save_run
from tests.training.test_trainer import Recorder

BOTH = ("greedy", "sampled")


def test_the_higher_mean_over_three_evaluations_decides() -> None:
    recent: RecentReturns = {}
    decided = []
    for greedy, sampled in ((1.0, 1.0), (0.0, 5.0), (7.0, 0.0), (0.0, 5.0), (0.0, 0.0), (0.0, 0.0)):
        recent = add_means(recent, {"greedy": greedy, "sampled": sampled})
        decided.append(deciding_mode(recent))
    # Means: (1, 1), (1/2, 3), (8/3, 2), (7/3, 10/3), (7/3, 5/3), (0, 5/3).
    assert decided == ["greedy", "sampled", "greedy", "sampled", "greedy", "sampled"]
    assert recent == {"greedy": (0.0, 0.0, 0.0), "sampled": (5.0, 0.0, 0.0)}
    assert deciding_mode({"sampled": (2.0,), "greedy": (2.0,)}) == "sampled"  # the first of equals
    assert deciding_mode({"greedy": (math.nan,), "sampled": (-9.0,)}) == "sampled"


@pytest.mark.slow
def test_both_modes_play_the_episodes_that_each_plays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "MAX_ENVIRONMENTS", 4)  # 6 episodes: two in some, one in others
    env = registry.make("gymnax:CartPole-v1")
    agent = tiny_agent(env.spec)
    player = DeviceEvaluator(agent, VectorEnv(env), Topology.of(1))
    state, key = jax.jit(agent.init)(jax.random.key(1)), jax.random.key(2)
    together = player.play(state, key, 6, BOTH)
    assert [*together] == [*BOTH]
    for mode in BOTH:
        alone = player.play(state, key, 6, (mode,))[mode]
        assert int(alone.played.sum()) == 6
        jax.tree.map(np.testing.assert_array_equal, together[mode], alone)
    assert any(
        (x != y).any() for x, y in zip(*(jax.tree.leaves(together[mode]) for mode in BOTH), strict=True)
    )
    assert len(player.compiled) == 3


@pytest.mark.slow
def test_a_policy_that_draws_nothing_plays_greedily_alone() -> None:
    recorder = Recorder()
    fields = config_fields("dqn", evaluate__episodes=2, stop__steps=1)
    summary = Trainer(fields, writer=MultiWriter([recorder])).fit()
    assert (summary["eval_mode"], [*summary["eval_returns"]]) == ("greedy", ["greedy"])
    (row,) = (row for _, row in recorder.rows if "eval/return" in row)
    assert not [name for name in row if name.startswith(("eval/greedy", "eval/sampled"))]


def progress_after(greedy: float, sampled: float) -> Progress:
    recent = add_means({}, {"greedy": greedy, "sampled": sampled})
    mode = deciding_mode(recent)
    mean = recent[mode][-1]
    result = Result(1, mean, 0.0, mean, mean, mean, mean, 1.0, 0.0, 0, mode)
    return Progress(Interval.empty({}), evaluation=result, recent_returns=recent)


def test_a_target_is_for_the_mode_that_decides_or_for_every_one() -> None:
    assert progress_after(490.0, 95.0).has_reached(475.0, every_mode=False)
    assert not progress_after(490.0, 95.0).has_reached(475.0, every_mode=True)
    assert progress_after(0.0, 0.96).has_reached(0.95, every_mode=False)
    assert progress_after(490.0, 480.0).has_reached(475.0, every_mode=True)
    assert not Progress(Interval.empty({})).has_reached(0.0, every_mode=True)


def test_progress_keeps_what_decides() -> None:
    before = progress_after(1.0, 2.5)
    Progress.check({**before.to_json(), "config": {}})
    again = Progress.from_json(before.to_json(), Interval.empty({}))
    assert (again.evaluation, again.recent_returns) == (before.evaluation, before.recent_returns)
    for wrong in ({"other": [1.0]}, {"greedy": []}, {"greedy": 1.0}):
        with pytest.raises(ValueError, match="`recent_returns`"):
            Progress.check({**before.to_json(), "config": {}, "recent_returns": wrong})


@pytest.mark.slow
def test_a_policy_acts_as_it_was_judged(tmp_path: Path) -> None:
    save_run(tmp_path, env__name="gymnax:CartPole-v1")
    obs = np.zeros((64, 4), np.float32)
    greedy = jaxrl.load(tmp_path)
    assert greedy.mode == "greedy"
    checkpoints = Checkpointer(str(tmp_path / "checkpoints"), keep=1)
    checkpoints.save_score(7, 3.0, {"mode": "sampled"})
    assert checkpoints.meta(7)["mode"] == "sampled"
    checkpoints.close()
    sampled = jaxrl.load(tmp_path)
    assert sampled.mode == "sampled"
    assert len(np.unique(greedy.act(obs)[0])) == 1
    assert len(np.unique(sampled.act(obs)[0])) == 2
    assert len(np.unique(sampled.act(obs, sample=False)[0])) == 1
    assert len(np.unique(greedy.act(obs, sample=True)[0])) == 2


def test_modes_that_an_agent_lacks_are_left_out() -> None:
    env = registry.make("gymnax:CartPole-v1")
    assert modes_of(tiny_agent(env.spec), BOTH) == BOTH
    without = algorithms.build_agent(resolve(config_fields("dqn"), 1), env.spec)
    assert modes_of(without, BOTH) == ("greedy",)
    with pytest.raises(ConfigError, match="nothing to sample"):
        modes_of(without, ("sampled",))
