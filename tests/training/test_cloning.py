"""`jaxrl pretrain` from episodes to a policy that plays as its teacher, and to training from it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import ConfigError, default_config
from jaxrl.envs import registry
from jaxrl.envs.base import Box, Discrete, Mixed
from jaxrl.evaluation import trained_policy
from jaxrl.experience.demonstrations import record_episodes, write_dataset
from jaxrl.experience.demonstrations.recording import Player
from jaxrl.reporting.writers import MultiWriter
from jaxrl.runs.signals import Interruption
from jaxrl.training.cloning import CloningLayout, CloningPlan, clone, prior_loss
from jaxrl.training.trainer import Trainer
from jaxrl.types import Array, PyTree
from tests.algorithms.tiny import assert_equal
from tests.envs.numbered_environments import NUMBERED
from tests.experience.demonstrations.samples import SPEC, episode

ENV = "jaxrl:ProbeMemory"


def test_layouts_by_hand() -> None:
    # Nine equal episodes fill nine lanes; 4,608 rows in minibatches of 64 steps.
    assert CloningLayout.of([500] * 9, 64, 16, 1) == CloningLayout(
        lanes=9, rows=512, chunk=16, minibatches=72
    )
    # Two devices share out the lanes, and one long episode takes a lane alone.
    found = CloningLayout.of([96, 8, 8, 8], 16, 16, 2)
    assert (found.lanes, found.rows) == (2, 128)
    # Without memory the steps of 36 short episodes lie in many lanes, though one would have no padding.
    assert CloningLayout.of([5] * 36, 64, 1, 1) == CloningLayout(lanes=14, rows=16, chunk=1, minibatches=4)
    single = CloningLayout.of([3], 64, 16, 1)
    assert (single.lanes, single.chunk, single.minibatches) == (1, 3, 1)


def test_the_prior_by_hand() -> None:
    # Actions 0, 1, 2 of one episode; counts with one more each are 2 of 6. The other has 0 twice and 1 once.
    own, other = [episode(3)], [episode(4)]
    assert prior_loss(own, other, SPEC) == pytest.approx(np.log(3))
    assert prior_loss([episode(1)], [episode(1)], SPEC) == pytest.approx(-np.log(2 / 4))
    # Of a normal distribution with the data's own moments log(std) + log(2 pi e) / 2. The units of the
    # policy's densities are 500 and 250.
    spec = dataclasses.replace(SPEC, action_space=Box.of(0, 1000, (2,)))
    far = [dataclasses.replace(episode(2), actions=np.array([[100.0, 400.0], [300.0, 800.0]]))]
    expected = np.log(100 / 500) + np.log(200 / 250) + np.log(2 * np.pi * np.e)
    assert prior_loss(far, far, spec, np.array([500, 250])) == pytest.approx(expected)
    # Of an action of both kinds the sum: 7 times of 8 the first of two categories, which is no density.
    parts = (("gear", Discrete(2)), ("force", Box.of(0, 1000, (1,))))
    mixed = dataclasses.replace(SPEC, action_space=Mixed(parts))
    chosen = np.stack([np.arange(8) == 3, np.where(np.arange(8) % 2, 300.0, 100.0)], axis=-1)
    both = [dataclasses.replace(episode(8), actions=chosen.astype(np.float32))]
    of_gear = -(7 * np.log(8 / 10) + np.log(2 / 10)) / 8
    of_force = np.log(100 / 500) + np.log(2 * np.pi * np.e) / 2
    assert prior_loss(both, both, mixed, (1.0, 500.0)) == pytest.approx(of_gear + of_force)


class Expert(Player):
    """Plays what the network of a run would, with the memory that it needs."""

    name = "expert"

    def initial_carry(self, n: int) -> PyTree:
        return jnp.zeros(n)

    def act(self, obs: PyTree, carry: PyTree, reset: Array, mask: Any, keys_B: Array) -> tuple[Array, PyTree]:
        cue = jnp.where(reset, obs[:, 0], carry)
        return (cue > 0).astype(jnp.int32), cue


def config_of(core: str, seed: int = 0) -> ConfigDict:
    config = default_config()
    config.seed, config.num_devices = seed, 1
    config.env.update(name=ENV, num_envs=8)
    config.network.update(core=core, hidden_sizes=(16,), core_size=16)
    config.normalize.observations = True
    config.ppo.update(rollout_length=16, num_minibatches=2)
    config.stop.steps = 8 * 16 * 2
    config.log.update(every_steps=8 * 16, layers=False)
    config.evaluate.update(every_steps=0, episodes=32)
    return config


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "episodes"
    recorded = record_episodes(ENV, (), Expert(), 40, seed=0)
    write_dataset(folder, recorded, registry.spec_of(ENV), {"env": ENV, "wrappers": []})
    return str(folder)


def plan_of(data: str, **fields: Any) -> CloningPlan:
    return CloningPlan(data, **({"epochs": 40, "learning_rate": 1e-2, "patience": 30} | fields))


def losses(folder: Path) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss/policy"]) for row in rows if "loss/policy" in row]


@pytest.fixture(scope="module")
def cloned(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("clone") / "run"
    outcome, found = clone(config_of("lstm"), plan_of(data), str(folder), Interruption())
    assert outcome.exit_code == 0
    assert found is not None
    return folder, found


@pytest.mark.slow
def test_a_recurrent_clone_plays_what_its_teacher_plays(
    cloned: tuple[Path, dict[str, Any]], data: str
) -> None:
    folder, found = cloned
    assert found["passed"]
    assert found["accuracy"] == 1.0
    assert found["loss"] < 0.1 < found["prior_loss"]
    assert found["played"]["eval/return"] == 1.0
    assert (found["episodes"]["training"], found["episodes"]["validation"]) == (36, 4)
    assert json.loads((folder / "clone.json").read_text()) == found
    # Step by step on fresh episodes, carrying its own memory.
    trained = trained_policy.load(str(folder), "latest", devices=1)
    for shown in record_episodes(ENV, (), Expert(), 8, seed=9):
        carry = trained.agent.initial_carry(1)
        for t in range(len(shown)):
            inputs = (shown.observations[None, t], carry, jnp.array([t == 0]), None)
            out = trained.agent.forward(trained.state, *inputs)
            assert int(trained.agent.greedy(out)[0]) == shown.actions[t]
            carry = out.carry


class Shown(Player):
    """Takes the action of a numbered environment's solver."""

    name = "shown"

    def initial_carry(self, n: int) -> PyTree:
        return jnp.zeros(n)

    def act(self, obs: PyTree, carry: PyTree, reset: Array, mask: Any, keys_B: Array) -> tuple[Array, PyTree]:
        return obs, carry


# Data of a clone, and what a loaded policy sees and takes: tests/envs/test_own_numbers.py.
@pytest.mark.long
def test_data_in_the_environments_numbers_are_cloned_as_they_were_played(tmp_path: Path) -> None:
    episodes = list(record_episodes(NUMBERED, (), Shown(), 64, seed=0))
    folder = tmp_path / "episodes"
    write_dataset(folder, episodes, registry.spec_of(NUMBERED), {"env": NUMBERED, "wrappers": []})
    config = config_of("none")
    config.env.name = NUMBERED
    _, found = clone(config, plan_of(str(folder)), str(tmp_path / "run"), Interruption())
    assert found is not None
    # By the environment's own judgement: all of the reward is what the shown actions get.
    best = np.mean([episode.episode_return for episode in episodes])
    assert found["played"]["eval/greedy/return"] == pytest.approx(best, abs=0.01)
    policy = jaxrl.load(tmp_path / "run", trust=True)
    acted, _ = policy.act(episodes[0].observations[:-1])
    np.testing.assert_array_equal(acted, episodes[0].actions)


@pytest.mark.slow
def test_training_starts_from_the_clone_and_beside_it(
    cloned: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, _ = cloned
    config = config_of("lstm")
    config.init_from = config.ppo.teacher = str(folder)
    config.ppo.value_warmup = 1
    trainer = Trainer(config, writer=MultiWriter([]))
    trainer.start()
    clone_policy = trained_policy.load(str(folder), "latest", devices=1).state
    assert_equal(trainer.state.learner.policy.params, clone_policy.params)
    assert_equal(trainer.state.learner.teacher.params, clone_policy.params)
    assert float(trainer.state.learner.policy.obs_stats.count) > 0
    assert trainer.evaluate(16).mean == 1.0
    first = trainer.update(trainer.rollout())
    # The same policy on the same rows, and only its value function learns.
    assert first["ppo/teacher_kl"] == pytest.approx(0, abs=1e-6)
    assert first["ppo/approx_kl"] == pytest.approx(0, abs=1e-6)
    assert trainer.update(trainer.rollout())["ppo/approx_kl"] > 0


@pytest.mark.slow
def test_another_network_is_no_teacher(cloned: tuple[Path, dict[str, Any]]) -> None:
    config = config_of("gru")
    config.ppo.teacher = str(cloned[0])
    with pytest.raises(ConfigError, match="`ppo.teacher` .=.* must be of the same network"):
        Trainer(config, writer=MultiWriter([])).start()


@pytest.mark.slow
def test_a_clone_without_memory_fails_its_check(data: str, tmp_path: Path) -> None:
    # The cue is gone when it counts; a policy that sees nothing is as good.
    plan = plan_of(data, epochs=1, learning_rate=0.0)
    _, found = clone(config_of("none"), plan, str(tmp_path / "run"), Interruption())
    assert found is not None
    assert not found["passed"]
    assert not json.loads((tmp_path / "run/clone.json").read_text())["passed"]


@pytest.mark.slow
def test_the_report_is_of_the_parameters_that_the_clone_has(data: str, tmp_path: Path) -> None:
    # At this rate the last pass is not the best, and with this patience passes alone end it.
    plan = plan_of(data, epochs=8, learning_rate=0.3, patience=30, validation=0.3)
    _, found = clone(config_of("none"), plan, str(tmp_path / "run"), Interruption())
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    name = "behavior_cloning/validation_loss"
    judged = [row[name] for row in map(json.loads, lines) if name in row]
    assert found is not None
    assert found["loss"] == min(judged) < judged[-1]


@pytest.mark.slow
def test_stopped_and_resumed_it_is_the_same_clone(
    cloned: tuple[Path, dict[str, Any]], data: str, tmp_path: Path
) -> None:
    (straight, expected), halves = cloned, tmp_path / "halves"
    clone(config_of("lstm"), plan_of(data, epochs=3), str(halves), Interruption())
    _, found = clone(config_of("lstm"), plan_of(data), str(halves), Interruption())
    assert losses(straight)[3:] == losses(halves)[3:]
    assert found is not None
    assert found["accuracy"] == expected["accuracy"]
    one, two = (trained_policy.load(str(x), "latest", devices=1).state for x in (straight, halves))
    assert_equal(one, two)
