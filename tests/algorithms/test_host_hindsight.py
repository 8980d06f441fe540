"""Hindsight for Gymnasium environments with goals: rules that are checked, and the goals of a whole run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.algorithms.replay import HindsightPlan, hindsight_plan
from jaxrl.config import ConfigError, resolve
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.goals import NearGoals, RewardOfGoals
from jaxrl.experience.replay import Replay
from jaxrl.training.assembly import Assembly
from jaxrl.types import Axis
from tests.algorithms.tiny import config_fields, tiny_config
from tests.envs import goal_rules
from tests.envs.goal_environments import Line

LINES = "gymnasium:tests.envs.goal_environments"
RULES = "tests.envs.goal_rules"


def plan_of(env: str, rule: str) -> HindsightPlan | None:
    fields = {"learner__hindsight": "future", "learner__hindsight_goals": rule and f"{RULES}:{rule}"}
    spec = envs.make_host(f"{LINES}:{env}").spec
    return hindsight_plan(tiny_config("dqn", **fields), spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "rule", "goals"),
    [
        ("Line", "", NearGoals()),
        ("SilentLine", "", NearGoals()),
        ("EndlessLine", "ENDLESS", goal_rules.ENDLESS),
        ("EndlessLine", "sparse", RewardOfGoals(goal_rules.sparse)),
    ],
)
def test_rules_that_agree_with_the_environment(env: str, rule: str, goals: Any) -> None:
    plan = plan_of(env, rule)
    assert plan is not None
    assert plan.goals == goals


@pytest.mark.parametrize(
    ("env", "rule", "message"),
    [
        ("EndlessLine", "", "which is NearGoals.*gives the reward 1 .* but the environment gives 0; name"),
        ("Line", "FAR", "goal_rules:FAR'. gives the reward 1 .* but the environment gives -1; name"),
        ("SilentLine", "FAR", "gives the reward 1 .* but the environment gives -1; name"),
        ("EndlessLine", "NUMBER", "int is no function of"),
        ("EndlessLine", "missing", "has no missing"),
        ("EndlessLine", "of_the_wrong_shape", r"gives a reward of shape \(192, 1\) for goals \(192, 1\)"),
    ],
)
def test_rules_that_do_not(env: str, rule: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        plan_of(env, rule)
    assert "\n" not in str(error.value)


def test_a_termination_that_differs() -> None:
    ends = NearGoals(reached=0.0)
    spec: EnvSpec = envs.make_host(f"{LINES}:EndlessLine").spec
    assert spec.goal_examples is not None
    with pytest.raises(ValueError, match="gives the termination 1 .* but the environment gives 0"):
        envs.goals.check_goals(ends, spec.goal_examples)


def test_an_environment_that_says_itself_what_goals_are_worth() -> None:
    fields = {"learner__hindsight": "future", "learner__hindsight_goals": f"{RULES}:sparse"}
    with pytest.raises(ConfigError, match="must be empty: 'jaxrl:BitFlip.bits=3.' says what its"):
        hindsight_plan(tiny_config("dqn", **fields), envs.make("jaxrl:BitFlip(bits=3)").spec)


def test_wrappers_that_change_rewards_drop_the_goals() -> None:
    assert envs.make_host(f"{LINES}:Line", ["reward_scale(factor=2)"]).spec.goal_examples is None
    assert envs.make_host(f"{LINES}:Line(keys=('achieved_goal', 'desired_goal'))").spec.goal_examples is None


# The rules are above; a run on the device: test_dqn_hindsight.py.
@pytest.mark.long
def test_a_run_asks_for_goals_with_their_own_rewards() -> None:
    config = config_fields("dqn", network__encoder="joint", learner__hindsight="future", learner__n_step=1)
    config.env.name = f"{LINES}:Line"
    runtime = Assembly.build(resolve(config, 1)).runtime
    runtime.compile()
    state, interval = runtime.learning.initial_state(), runtime.learning.empty_interval()
    for _ in range(3):
        state, interval, failed = runtime.advance(state, interval, 1)
        assert not failed
    latest, memory, line = runtime.failed_rollout(state), state.memory, Line()
    runtime.close()
    assert memory.rows["obs"]["achieved_goal"].dtype == np.float32
    plan = dataclasses.replace(runtime.learning.per_device.algorithm.memory, axis=Axis())
    drawn = jax.device_get(jax.jit(Replay(plan).draw)(memory, latest, jax.random.key(0)))
    usable = np.flatnonzero(drawn.usable)
    achieved, asked = drawn.next_obs["achieved_goal"], drawn.obs["desired_goal"]
    assert len(usable) > 30
    for n in usable:
        assert drawn.reward[0, n] == line.compute_reward(achieved[n], asked[n], {})
        assert drawn.terminated[n] == line.compute_terminated(achieved[n], asked[n], {})
    own = np.asarray(memory.rows["obs"]["desired_goal"])[drawn.row[usable], drawn.env[usable]]
    assert (asked[usable] != own).mean() > 0.4
