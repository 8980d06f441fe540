"""Spaces with a `start`: counted from 0 inside, the environment's own where data comes in or goes out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs import catalogue, registry
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete
from jaxrl.envs.env_check import check_env
from jaxrl.envs.host.spaces import AgentSpaces, action_space
from jaxrl.envs.mixture import TaskLayout
from jaxrl.envs.numbering import counted_from_zero, own_numbers
from jaxrl.envs.spaces import bounds, sample
from jaxrl.evaluation import inspection
from jaxrl.evaluation.evaluator import EvaluationTask
from jaxrl.experience.demonstrations import (
    DatasetFault,
    Episode,
    read_dataset,
    record_episodes,
    write_dataset,
)
from jaxrl.experience.demonstrations.demonstrations import lay_out
from jaxrl.experience.demonstrations.recording import Player, RandomPlayer, SolverPlayer
from jaxrl.experience.demonstrations.replays import ActionReplay
from jaxrl.experience.demonstrations.simulation import Simulator
from jaxrl.inference.loaded_policy import LoadedPolicy
from tests.envs.numbered_environments import NUMBERED, ON_HOST, STEPS, VECTORS
from tests.inference.runs import policy_of

PAIR = MultiDiscrete((3, 2), start=(5, -1))


def recorded(name: str, player: Player | None = None) -> Episode:
    spec = registry.spec_of(name)
    (episode,) = record_episodes(name, (), player or RandomPlayer(spec), 1, seed=1)
    return episode


def rewards_of(name: str, actions: np.ndarray) -> np.ndarray:
    """What the environment gives for these, in its own numbers."""
    return actions if name != VECTORS else actions @ np.array([1.0, 0.1])


def test_elements_of_each_kind_of_space() -> None:
    mixed = Mixed((("one", Discrete(3, start=-4)), ("push", Box.of(0, 1, (1,))), ("pair", PAIR)))
    tree = Dict((("one", Discrete(3, start=-4)), ("plain", Discrete(3))))
    for space, inside, own in [
        (Discrete(3, start=-4), [0, 2], [-4, -2]),
        (PAIR, [[0, 0], [2, 1]], [[5, -1], [7, 0]]),
        (mixed, [[1.0, 0.5, 0.0, 1.0]], [[-3.0, 0.5, 5.0, 0.0]]),
    ]:
        for array in (np.array(inside, space.dtype), jnp.array(inside, space.dtype)):
            found = own_numbers(space, array)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, own)
            np.testing.assert_array_equal(counted_from_zero(space, found), inside)
    assert own_numbers(tree, {"one": np.int32(1), "plain": np.int32(1)}) == {"one": -3, "plain": 1}
    # Files may have numbers of any type; those of uint8 have no sign.
    np.testing.assert_array_equal(counted_from_zero(Discrete(3, start=-4), np.uint8([0])), [4])
    np.testing.assert_array_equal(bounds(PAIR), [[5, -1], [7, 0]])
    assert {int(sample(Discrete(2, start=9), jax.random.key(i))) for i in range(8)} == {9, 10}
    assert MultiDiscrete((3, 2), start=(0, 0)) == MultiDiscrete((3, 2)) != PAIR
    assert catalogue.describe(PAIR) == "MultiDiscrete[3, 2], start=[5, -1]"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Discrete(3, start=2**31 - 1), "must fit into int32"),
        (lambda: Discrete(3, start=0.5), "must be an integer"),  # type: ignore[arg-type]
        (lambda: MultiDiscrete((2, 3), start=(1,)), "must be a tuple of 2 integers"),
        (lambda: Mixed((("far", Discrete(2, start=2**24)),)), "action part 'far'"),
    ],
)
def test_starts_that_no_array_holds(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_a_device_environment_of_ones_own_gets_its_numbers() -> None:
    for name in (NUMBERED, VECTORS):
        check_env(name)
        check_env(registry.make(name).env)  # type: ignore[attr-defined]
    seen = NUMBERED.replace("Numbered", "Seen")
    # One that is built on another, and tasks of a mixture, are shifted once.
    for name in (
        NUMBERED,
        NUMBERED.replace("Numbered", "Around"),
        f"jaxrl:Mixture(tasks=({seen!r}, {seen!r}))",
    ):
        env = registry.make(name)
        assert env.spec.action_space == Discrete(3, start=5)
        state, obs = env.reset(jax.random.key(0))
        assert int(jnp.argmax(obs["observation"]) if "Mixture" in name else obs) == 0
        assert float(env.step(jax.random.key(0), state, jnp.int32(2))[1].reward) == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", [NUMBERED, pytest.param(VECTORS, marks=pytest.mark.slow)])
def test_recorded_episodes_are_cloned_as_they_were_played(name: str, tmp_path: Path) -> None:
    spec = registry.spec_of(name)
    episode = recorded(name)
    np.testing.assert_allclose(episode.rewards, rewards_of(name, episode.actions), rtol=1e-6)
    low, high = bounds(spec.action_space)
    assert ((episode.actions >= low) & (episode.actions <= high)).all()
    first = [-1, 0, 1, -1, 0]
    np.testing.assert_array_equal(
        episode.observations, [[1 + t % 2, t % 3 - 2] for t in range(5)] if name == VECTORS else first
    )
    write_dataset(tmp_path / "data", [episode], spec, {})
    dataset = read_dataset(str(tmp_path / "data"), spec, verify=True)
    rows = lay_out(dataset.episodes, spec, lanes=1, rows=STEPS)
    start = spec.action_space.start
    np.testing.assert_array_equal(rows.action[:, 0], episode.actions - np.array(start))
    np.testing.assert_array_equal(
        rows.obs[:, 0], episode.observations[:-1] - np.array(spec.observation_space.start)
    )
    # Solvers and replays speak of the environment's numbers too.
    (solved,) = [recorded(name, SolverPlayer())]
    assert (solved.actions.reshape(STEPS, -1)[:, 0] == [5, 6, 7, 5]).all()
    replayed = Simulator(name).simulate(ActionReplay("", episode.actions, seed=0))
    np.testing.assert_array_equal(replayed.rewards, episode.rewards)
    np.testing.assert_array_equal(replayed.actions, episode.actions)


@pytest.mark.slow
def test_data_that_counts_from_zero_is_refused(tmp_path: Path) -> None:
    spec = registry.spec_of(NUMBERED)
    wrong = dataclasses.replace(recorded(NUMBERED), actions=np.array([0, 1, 2, 0]))
    write_dataset(tmp_path / "data", [wrong], spec, {})
    with pytest.raises(DatasetFault, match="actions must lie in the space Discrete; row 0 does not"):
        read_dataset(str(tmp_path / "data"), spec)


@pytest.mark.slow
@pytest.mark.parametrize("name", [NUMBERED, VECTORS])
def test_a_loaded_policy_sees_and_takes_the_environments_numbers(name: str) -> None:
    policy = policy_of(env__name=name, network__core="none")
    spec = policy.spec
    seen = np.stack(np.meshgrid([0, 1], [0, 1, 2]), -1).reshape(-1, 2) if name == VECTORS else np.arange(3)
    seen = seen.astype(np.int32)
    out = policy.agent.forward(
        policy.state, jnp.asarray(seen), policy.agent.initial_carry(len(seen)), np.ones(len(seen), bool), None
    )
    expected = np.asarray(policy.agent.greedy(out)) + np.array(spec.action_space.start)
    loaded = LoadedPolicy(policy)
    action, _ = loaded.act(seen + np.array(spec.observation_space.start))
    np.testing.assert_array_equal(action, expected)
    assert len(np.unique(action, axis=0)) > 1


@pytest.mark.slow
def test_the_page_of_an_episode_shows_the_actions_that_were_taken() -> None:
    policy = policy_of(env__name=NUMBERED, network__core="none")
    task = EvaluationTask.of(policy.config.env, policy.spec)
    rows, ended = inspection.play(policy, task, sample=True, seed=0)
    assert ended
    assert len(rows) == STEPS
    assert [row["action"] for row in rows] == [[row["reward"]] for row in rows]


@pytest.mark.slow
def test_an_environment_on_the_host_keeps_its_numbers() -> None:
    assert registry.spec_of(ON_HOST).action_space == Discrete(3, start=5)
    episode = recorded(ON_HOST)
    np.testing.assert_array_equal(episode.rewards, episode.actions)
    np.testing.assert_array_equal(episode.observations, [-1, 0, 1, -1, 0])


def test_agents_and_tasks_share_a_numbering_if_they_have_one() -> None:
    def leaf(count: int, start: int) -> dict[str, Any]:
        return {"path": (), "kind": "discrete", "shape": (), "low": start, "high": start + count - 1,
                "start": start, "dtype": "int64", "stored": "int32"}  # fmt: skip

    def of_agents(*leaves: dict[str, Any]) -> Any:
        each = {i: [x] for i, x in enumerate(leaves)}
        return action_space(AgentSpaces.of({i: [leaf(2, 0)] for i in each}, each, ()).action_leaf)

    assert of_agents(leaf(2, 4), leaf(3, 4)) == Discrete(3, start=4)
    assert of_agents(leaf(2, 4), leaf(3, 0)) == Discrete(3)

    class Task:
        def __init__(self, start: int):
            self.spec = EnvSpec(f"test:{start}", Box.of(0, 1, (2,)), Discrete(2, start=start))

    shared: Any = TaskLayout.of([Task(3), Task(3)])  # type: ignore[list-item]
    assert shared.action_space == Discrete(2, start=3)
    assert TaskLayout.of([Task(3), Task(0)]).action_space == Discrete(2)  # type: ignore[list-item]
