"""Runs in stages: exact rates, programs that compile anew, and resumes in every stage bit for bit."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.optimizer import parameter_name
from jaxrl.config import ConfigError, from_json, resolve, to_json
from jaxrl.evaluation import trained_policy
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.folder import RunFolder
from jaxrl.training.plan import _STAGE_STREAM, TrainingPlan
from jaxrl.training.trainer import Trainer
from tests.algorithms.tiny import LENGTH, assert_equal, config_fields
from tests.algorithms.tiny import STEPS as ROLLOUT
from tests.training.test_trainer import STEPS, Recorder, tiny_config

FROZEN = "params/MLP_0/*"
HEADS = "params/head/*"
OTHER = "tests.algorithms.environments:Chance(masked=True, end=0.2)"
# Rates alone; then other epochs and a rate; then another program, and other environments.
STAGES: tuple[Any, ...] = (
    "iterations=3 learning_rate=1e-3",
    {"name": "slower", "steps": 2 * STEPS, "learning_rate": 3e-4},
    {"iterations": 2, "ppo.learning_rate": "1e-4", "network.frozen": [FROZEN]},
    {
        "iterations": 1,
        "env": {"name": "gymnax:CartPole-v1(masspole=0.2)"},
        "learning_rate": 1e-4,
        "normalize.clip_observations": 5.0,
        "fresh": [HEADS],
    },
)
ENDS = (3, 5, 7, 8)


def staged(folder: Path | None = None, **fields: Any) -> tuple[Trainer, Recorder]:
    recorder, where = Recorder(), None
    if folder is not None:
        where = RunFolder(str(folder), keep=100)
        where.create()
    config = tiny_config(1_000, **{"log.every_steps": 2 * STEPS, **fields})
    config.stages = STAGES
    return Trainer(resolve(config, 1), where, MultiWriter([recorder])), recorder


def rates(recorder: Recorder) -> list[tuple[int, float, float]]:
    """(iteration, stage, learning rate) of each row."""
    return [
        (step // STEPS, row["stage"], row["ppo/learning_rate"])
        for step, row in recorder.rows
        if "ppo/learning_rate" in row
    ]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Recorder, Path]:
    """Every iteration is saved."""
    folder = tmp_path_factory.mktemp("straight")
    trainer, recorder = staged(folder, **{"checkpoint.every_steps": STEPS})
    assert trainer.config.stop.steps == ENDS[-1] * STEPS
    assert trainer.fit()["steps"] == ENDS[-1] * STEPS
    return trainer, recorder, folder


@pytest.mark.slow
def test_rates_are_exact_and_rows_say_the_stage(straight: tuple[Trainer, Recorder, Path]) -> None:
    _, recorder, _ = straight
    first, second, third = (float(np.float32(x)) for x in (1e-3, 3e-4, 1e-4))
    # A row ends where a stage does, beside every second iteration. The first iteration gathers statistics.
    assert rates(recorder) == [
        (2, 1, first),
        (3, 1, first),
        (4, 2, second),
        (5, 2, second),
        (6, 3, third),
        (7, 3, third),
        (8, 4, third),
    ]


@pytest.mark.slow
def test_a_policy_acts_in_the_stage_of_its_checkpoint(straight: tuple[Trainer, Recorder, Path]) -> None:
    trainer, _, folder = straight
    RunFolder(str(folder)).write_config(trainer.config)
    found = {i: trained_policy.load(str(folder), str(i * STEPS)) for i in (ENDS[2], ENDS[3])}
    names = ["gymnax:CartPole-v1", "gymnax:CartPole-v1(masspole=0.2)"]
    assert [policy.config.env.name for policy in found.values()] == names
    assert [policy.spec.name for policy in found.values()] == names
    assert [policy.agent.normalize_config.clip_observations for policy in found.values()] == [10.0, 5.0]


@pytest.mark.slow
def test_optimiser_and_counters_go_on_and_episodes_where_they_can(
    straight: tuple[Trainer, Recorder, Path],
) -> None:
    trainer, _, folder = straight
    assert int(trainer.state.learner.updates) == 2 * (ENDS[-1] - 1)
    assert int(trainer.state.learner.policy.obs_stats.count) == ENDS[-1] * STEPS
    found = {}
    for iteration in (4, 5, 7, 8):
        other, _ = staged()
        other.load(folder / "checkpoints" / str(iteration * STEPS))
        found[iteration] = other.state
    changed = 0
    frozen = [x.learner.policy.params for x in (found[5], found[7], found[8])]
    for (path, before), after, last in zip(
        jax.tree_util.tree_leaves_with_path(frozen[0]),
        jax.tree.leaves(frozen[1]),
        jax.tree.leaves(frozen[2]),
        strict=True,
    ):
        same = fnmatch.fnmatch(parameter_name(path), FROZEN)
        changed += not same
        assert np.array_equal(before, after) == same
        assert np.array_equal(before, last) == same  # what a stage does not say stays
    assert 0 < changed < len(jax.tree.leaves(frozen[0]))
    # Lengths of episodes in progress grow over the end of a stage, unless the environment is another one.
    assert int(found[5].collector.episode.episode_length.max()) > 8
    assert int(found[8].collector.episode.episode_length.max()) <= 8


@pytest.mark.slow
def test_a_stage_begins_with_new_heads(straight: tuple[Trainer, Recorder, Path]) -> None:
    _, _, folder = straight
    trainer, _ = staged()
    trainer.load(folder / "checkpoints" / str(ENDS[2] * STEPS))
    plan, learning = TrainingPlan.of(trainer.config), trainer._runtime.learning
    fresh = learning.initial_state(_STAGE_STREAM + 3).learner
    old, new = trainer.state.learner, plan.state_of(trainer.state, 2, 3, learning).learner
    flat = lambda tree: np.asarray(jax.flatten_util.ravel_pytree(tree)[0])  # noqa: E731
    is_head = np.concatenate(
        [
            np.full(x.size, fnmatch.fnmatch(parameter_name(path), HEADS))
            for path, x in jax.tree_util.tree_leaves_with_path(old.policy.params)
        ]
    )
    before, after, drawn = (flat(x.policy.params) for x in (old, new, fresh))
    assert 0 < is_head.sum() < len(is_head)
    np.testing.assert_array_equal(after, np.where(is_head, drawn, before))
    kernel = np.asarray(new.policy.params["head"]["logits"]["kernel"])
    assert not np.array_equal(kernel, np.asarray(old.policy.params["head"]["logits"]["kernel"]))
    (_, adam, _), (_, renewed, _) = old.opt_state, new.opt_state
    assert np.abs(adam.mu[is_head]).max() > 0
    np.testing.assert_array_equal(renewed.mu, np.where(is_head, 0, adam.mu))
    np.testing.assert_array_equal(renewed.nu, adam.nu)
    assert int(renewed.count) == int(adam.count)
    # A run that goes back to an earlier stage has that stage's parameters already.
    back = plan.state_of(trainer.state, 3, 2, learning).learner
    np.testing.assert_array_equal(flat(back.policy.params), before)


@pytest.mark.slow
def test_what_thaws_learns_with_a_fresh_adam() -> None:
    config = tiny_config(1_000)
    config.stages = ({"iterations": 2, "network.frozen": [FROZEN]}, {"iterations": 1, "network.frozen": []})
    recorder = Recorder()
    trainer = Trainer(resolve(config, 1), writer=MultiWriter([recorder]))
    for _ in range(2):
        trainer.update(trainer.rollout())
    plan, learning = TrainingPlan.of(trainer.config), trainer._runtime.learning
    adam = trainer.state.learner.opt_state[1]
    assert int(adam.count) > 0
    begun = plan.state_of(trainer.state, 0, 1, learning).learner
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(begun.opt_state))
    assert begun.policy is trainer.state.learner.policy
    assert plan.beginning(0, 1, STEPS, False).endswith(
        "network.frozen=(), Adam's state is reset for parameters that were frozen"
    )


@pytest.mark.slow
def test_a_memory_of_another_environment_is_left_behind() -> None:
    config = config_fields("dqn", checkpoint__every_steps=0)
    config.stages = ({"iterations": 2}, {"iterations": 1, "env.name": OTHER})
    trainer = Trainer(resolve(config, 1), writer=MultiWriter(()))
    plan, learning = TrainingPlan.of(trainer.config), trainer._runtime.learning
    memory = dataclasses.replace(trainer.state.memory, count=jnp.int32(LENGTH))
    state = dataclasses.replace(trainer.state, memory=memory)
    assert int(plan.state_of(state, 0, 1, learning).memory.count) == 0
    assert "the memory starts empty" in plan.beginning(0, 1, ROLLOUT, has_memory=True)


@pytest.mark.slow
def test_a_memory_of_the_same_environment_is_kept() -> None:
    config = config_fields("dqn", checkpoint__every_steps=0)
    config.stages = ({"iterations": 2}, {"iterations": 1, "env.success": "return >= 400"})
    trainer = Trainer(resolve(config, 1), writer=MultiWriter(()))
    plan, learning = TrainingPlan.of(trainer.config), trainer._runtime.learning
    assert "the memory starts empty" not in plan.beginning(0, 1, ROLLOUT, has_memory=True)
    memory = dataclasses.replace(trainer.state.memory, count=jnp.int32(LENGTH))
    before = dataclasses.replace(trainer.state, memory=memory)
    after = plan.state_of(before, 0, 1, learning)
    assert int(after.memory.count) == LENGTH
    # Success is counted another way: episodes begin again.
    assert (before.collector.obs != after.collector.obs).any()


def plan_of(*stages: Any, **fields: Any) -> TrainingPlan:
    config = tiny_config(1_000, **fields)
    config.stages = stages
    return TrainingPlan.of(resolve(config, 1))


MASSPOLE = {"curriculum.parameter": "masspole", "curriculum.iterations": 2}


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (
            partial(plan_of, *STAGES),
            "3 (stage 3) for network.frozen; 4 (stage 4) for env.name, normalize.clip_observations, fresh",
        ),
        (
            partial(plan_of, "iterations=1", "iterations=1 num_epochs=2", "num_epochs=1"),
            "2 (stage 2) for ppo.num_epochs",  # the third has the program of the first
        ),
        (partial(plan_of, {"iterations": 1}, {"name": "heads", "fresh": [HEADS]}), "2 (heads) for fresh"),
        (
            partial(plan_of, **{"curriculum.difficulties": (0.1, 0.2, 0.5), **MASSPOLE}),
            "2 (masspole 0.2) for env.name; 3 (masspole 0.5) for env.name",
        ),
        (partial(plan_of, "iterations=2 learning_rate=1e-3", "learning_rate=1e-4 gamma=0.9"), ""),
        (partial(plan_of), ""),
    ],
)
def test_what_compiles_anew_is_said_beforehand(plan: Callable[[], TrainingPlan], line: str) -> None:
    assert plan().announcement() == (f"stages that compile again: {line}" if line else "")


@pytest.mark.parametrize(
    ("stages", "steps", "planned"),
    [
        # Two updates a rollout, four in the second stage, and again two.
        (("iterations=6", "iterations=3 num_epochs=2", "iterations=1 num_epochs=1"), 1, 12 + 12 + 2),
        (("iterations=6", "num_epochs=2"), 10, 12 + 16),  # The last one takes what `stop.steps` leaves.
        (("seconds=6", "num_epochs=2"), 10, 40),  # Nobody knows when the first ends: at most so many.
        (("iterations=6", "iterations=3 gamma=0.9"), 1, 18),
    ],
)
def test_schedules_follow_the_updates_of_all_stages(stages: Any, steps: int, planned: int) -> None:
    """A rate that falls to 0 over the run does not do so where a stage with fewer epochs begins."""
    config = tiny_config(steps, **{"ppo.schedule": "linear"})
    config.stages = stages
    plan = TrainingPlan.of(resolve(config, 1))
    assert [stage.total_updates for stage in plan.configs] == [planned] * len(stages)
    # A checkpoint holds the configuration of its stage.
    assert [from_json(json.loads(json.dumps(to_json(stage)))) for stage in plan.configs] == [*plan.configs]


def test_schedules_plan_no_updates_where_a_memory_fills_anew() -> None:
    """Of 10 iterations the first 2 of each environment only fill the memory."""
    starts = 3 * ROLLOUT
    config = config_fields("dqn", learner__learning_starts=starts, learner__capacity=starts)
    config.stages = ("iterations=4", "iterations=2 gamma=0.9", {"iterations": 4, "env.name": OTHER})
    plan = TrainingPlan.of(resolve(config, 1))
    rate = plan.configs[0].updates_per_iteration
    assert [stage.total_updates for stage in plan.configs] == [(10 - 2 - 2) * rate] * 3


def test_a_resumed_run_announces_what_is_left() -> None:
    plan = plan_of("iterations=1", "iterations=1 num_epochs=2", "num_epochs=1")
    # The program of the first stage is not compiled by a process that begins in the second.
    assert plan.announcement(1) == "stages that compile again: 3 (stage 3) for ppo.num_epochs"
    assert not plan.announcement(2)


@pytest.mark.slow
def test_a_run_says_what_compiles_anew_before_it_trains(straight: tuple[Trainer, Recorder, Path]) -> None:
    _, recorder, _ = straight
    announced, *begun = recorder.messages
    assert announced.startswith("stages that compile again: 3 (stage 3) for network.frozen; 4 (stage 4) for ")
    assert [line.partition(" (")[0] for line in begun] == [f"stage {i} of 4" for i in (2, 3, 4)]


@pytest.mark.slow
def test_stages_that_change_rates_alone_announce_nothing_and_compile_nothing() -> None:
    config = tiny_config(1_000)
    config.stages = ("iterations=1 learning_rate=1e-3", "iterations=1 learning_rate=1e-4")
    recorder = Recorder()
    trainer = Trainer(resolve(config, 1), writer=MultiWriter([recorder]))
    trainer.fit()
    (line,) = recorder.messages
    assert line.startswith("stage 2 of 2 ")
    assert len({id(assembly.runtime) for assembly in trainer._assemblies}) == 1


# Where a stage ends, and within one, which tests/training/test_curriculum.py has as well.
@pytest.mark.slow
@pytest.mark.parametrize("saved", [5, pytest.param(2, marks=pytest.mark.long)])
def test_a_run_resumes_in_every_stage_bit_for_bit(
    straight: tuple[Trainer, Recorder, Path], saved: int, tmp_path: Path
) -> None:
    trainer, recorder, folder = straight
    other, rows = staged(**{"checkpoint.every_steps": STEPS})
    other.load(folder / "checkpoints" / str(saved * STEPS))
    other.save(tmp_path / "killed")
    resumed, rows = staged(tmp_path / "killed", **{"checkpoint.every_steps": STEPS})
    assert resumed.fit()["steps"] == ENDS[-1] * STEPS
    assert_equal(trainer.state, resumed.state)
    left = rates(rows)
    assert left
    assert left == rates(recorder)[-len(left) :]


@pytest.mark.slow
def test_a_stage_by_seconds_is_followed_by_the_next() -> None:
    config = tiny_config(1_000, **{"log.every_steps": STEPS})
    config.stages = ({"seconds": 0.02, "learning_rate": 1e-3}, {"iterations": 2, "learning_rate": 1e-4})
    recorder = Recorder()
    trainer = Trainer(resolve(config, 1), writer=MultiWriter([recorder]))
    assert trainer.config.stop.steps is None
    assert trainer.fit()["stop_reason"] == "steps"
    stages = [stage for _, stage, _ in rates(recorder)]
    assert stages == sorted(stages)
    assert stages.count(2) == 2
    assert set(stages) == {1, 2}


@pytest.mark.slow
def test_an_evaluation_ends_a_stage_of_environments_on_the_host() -> None:
    config = tiny_config(1_000, **{"log.every_steps": STEPS, "evaluate.every_steps": 2 * STEPS})
    config.env.name = "envpool:CartPole-v1"
    config.stages = (
        {"iterations": 1, "learning_rate": 1e-3},
        {"return": 1, "learning_rate": 3e-4, "env.name": "envpool:CartPole-v1(max_episode_steps=20)"},
        {"iterations": 2, "learning_rate": 1e-4},
    )
    recorder = Recorder()
    Trainer(resolve(config, 1), writer=MultiWriter([recorder])).fit()
    # Any episode has a return of 1, but one evaluated in the stage counts alone: after iteration 2.
    assert [(at, stage) for at, stage, _ in rates(recorder)] == [(2, 2), (3, 3), (4, 3)]
    lengths = {at: row.get("eval/length", 0) for at, row in ((s // STEPS, r) for s, r in recorder.rows)}
    assert max(lengths.values()) <= 20


def test_a_file_of_stages(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text("stages:\n  - {iterations: 4, learning_rate: 1e-3}\n  - {seconds: 2, gamma: 0.9}\n")
    config = tiny_config(1)
    config.stages = (str(path),)
    resolved = resolve(config, 1)
    assert [json.loads(text) for text in resolved.stages] == [
        {"iterations": 4, "learning_rate": 1e-3},
        {"seconds": 2, "gamma": 0.9},
    ]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            ({"iterations": 1, "learning_rate": -1}, {}),
            r"stage 1: `ppo.learning_rate` \(=-1\) must be at least",
        ),
        (({"iterations": 1}, {"learning_rat": 1}), "stage 2: `learning_rat` is no field .* `learning_rate`"),
        (({"iterations": 0}, {}), r"stage 1: `iterations` \(=0\) must be at least 1"),
        (({"gamma": 0.9}, {}), "stage 1: needs an end: `iterations`, `steps`, `seconds` or `return`"),
        (({"iterations": 1, "seconds": 1.0},), "stage 1: `iterations` and `seconds` must not both"),
        (({"iterations": 1, "env.num_envs": 16},), "stage 1: `env.num_envs` stays the same over a whole run"),
        (({"iterations": 1, "env.name": "gymnax:Acrobot-v1"},), "stage 1: .* another observation_space than"),
        (({"iterations": 5000}, {}), r"stage 2: it never begins: `stop.steps` \(="),
        (({"iterations": 1, "network.frozen": ["params/no/*"]},), r"`network.frozen` .* fits no parameter"),
        (({"iterations": 1}, {"fresh": "params/no/*"}), "stage 2: `fresh` .* fits no parameter"),
        (({"iterations": 1, "fresh": [HEADS]}, {}), "stage 1: `fresh` .* is for later stages"),
        (({"iterations": 1}, {"fresh": 3}), r"stage 2: `fresh` \(=3\) must be patterns of names"),
        (({"return": 5}, {}), r"stage 1: `return` \(=5\) needs evaluations: `evaluate.every_steps`"),
        (("iterations",), "stage 1: .* must be fields, such as"),
        (("no.yaml",), r"`stages` \(='no.yaml'\) cannot be read: No such file"),
    ],
)
def test_a_bad_stage_is_one_line_that_names_it(stages: Any, message: str) -> None:
    config = tiny_config(1_000)
    config.stages = stages
    with pytest.raises(ConfigError, match=message) as caught:
        Trainer(resolve(config, 1), writer=MultiWriter(()))
    assert "\n" not in str(caught.value)


def test_stages_are_refused_where_they_cannot_be(tmp_path: Path) -> None:
    config = tiny_config(10, **{"population.seeds": 2})
    config.stages = ("iterations=1", "learning_rate=1e-3")
    with pytest.raises(ConfigError, match=r"`population.seeds` \(=2\) must be 1 with `stages`"):
        resolve(config, 1)
