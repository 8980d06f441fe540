"""Recordings: whole episodes with their last observation, from the device and from the host."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config.errors import RunError
from jaxrl.envs import registry
from jaxrl.evaluation import recordings
from jaxrl.experience.demonstrations import Episode, record_episodes, recording
from jaxrl.experience.demonstrations.episode import check_episode
from jaxrl.experience.demonstrations.recording import Player, RandomPlayer
from jaxrl.types import Array, PyTree

CARTPOLE = "gymnax:CartPole-v1"


class Counting(Player):
    """Remembers how many observations of the episode it has seen, and acts by their parity."""

    name = "counting"

    def initial_carry(self, n: int) -> PyTree:
        return jnp.full(n, 99)  # what a reset must forget

    def act(self, obs: PyTree, carry: PyTree, reset: Array, mask: Any, keys_B: Array) -> tuple[Array, PyTree]:
        seen = jnp.where(reset, 0, carry)
        return (seen % 2).astype(jnp.int32), seen + 1


def recorded(env: str, player: Player, episodes: int, **rest: Any) -> list[Episode]:
    found = list(record_episodes(env, (), player, episodes, seed=3, **rest))
    for episode in found:
        check_episode(episode, registry.spec_of(env))
    return found


@pytest.mark.parametrize("env", [CARTPOLE, pytest.param("gymnasium:CartPole-v1", marks=pytest.mark.slow)])
def test_whole_episodes_that_a_reset_begins(env: str) -> None:
    pytest.importorskip("gymnasium")
    found = recorded(env, Counting(), 5)
    assert len(found) == 5
    for episode in found:
        # The memory of the player begins anew with each episode.
        np.testing.assert_array_equal(episode.actions, np.arange(len(episode)) % 2)
        assert len(episode.observations) == len(episode) + 1
        assert episode.terminations[-1]
        assert episode.episode_return == len(episode)
        # CartPole ends where the pole has fallen or the cart has left, and not one row before.
        position, _, angle, _ = np.abs(episode.observations[-1])
        assert position > 2.4 or angle > 12 * np.pi / 180
        inside = np.abs(episode.observations[:-1])
        assert inside[:, 0].max() < 2.4
        assert inside[:, 2].max() < 12 * np.pi / 180 + 1e-6
    starts = [episode.observations[0].tolist() for episode in found]
    assert len({str(start) for start in starts}) == 5
    if env == CARTPOLE:
        again = recorded(env, Counting(), 5)
        np.testing.assert_equal([e.observations for e in again], [e.observations for e in found])


@pytest.mark.slow
def test_transitions_are_the_environments_own() -> None:
    (episode,) = recorded(CARTPOLE, RandomPlayer(registry.spec_of(CARTPOLE)), 1)
    # Positions and angles move by what was observed of their velocities: 0.02 seconds a step.
    theta, theta_dot = episode.observations[:-1, 2], episode.observations[:-1, 3]
    np.testing.assert_allclose(episode.observations[1:, 2], theta + 0.02 * theta_dot, atol=1e-5)
    position, speed = episode.observations[:-1, 0], episode.observations[:-1, 1]
    np.testing.assert_allclose(episode.observations[1:, 0], position + 0.02 * speed, atol=1e-5)
    # Pushing to the right makes it faster to the right.
    change = np.diff(episode.observations[:, 1])
    np.testing.assert_array_equal(change > 0, episode.actions == 1)


def test_what_the_environment_reports_of_each_step_is_kept() -> None:
    name = "tests.evaluation.suites.environments:Corridor(length=5)"
    (episode,) = recorded(name, RandomPlayer(registry.spec_of(name)), 1, success="info.goal")
    assert {key: x.tolist() for key, x in episode.infos.items()} == {"goal": [0, 0, 0, 0, 1]}


@pytest.mark.slow
def test_random_actions_are_allowed_ones() -> None:
    name = "tests.algorithms.environments:Chance(masked=True)"
    found = recorded(name, RandomPlayer(registry.spec_of(name)), 40)
    actions = np.concatenate([episode.actions for episode in found])
    masks = np.concatenate([episode.action_masks for episode in found])
    assert masks[np.arange(len(actions)), actions].all()
    assert set(actions) == {0, 1, 2}
    # At a time limit an episode is truncated; a forbidden action would have ended it with -1000.
    assert min(episode.rewards.min() for episode in found) > -500
    assert {bool(episode.terminations[-1]) for episode in found} == {False, True}


@pytest.mark.slow
def test_success_by_the_rule_of_the_configuration() -> None:
    found = recorded(CARTPOLE, Counting(), 6, success="length>=40")
    assert [episode.success for episode in found] == [len(episode) >= 40 for episode in found]
    assert recorded(CARTPOLE, Counting(), 1)[0].success is None


@pytest.mark.slow
def test_an_episode_that_is_cut_off_on_the_host_leaves_the_next_to_a_fresh_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("gymnasium")
    monkeypatch.setattr(recording, "DEFAULT_MAX_EPISODE_STEPS", 5)
    monkeypatch.setattr(recording, "_MOST_ENVIRONMENTS", 2)
    found = recorded("gymnasium:tests.envs.host_environments:Count(length=1000)", Counting(), 5)
    assert [len(episode) for episode in found] == [5] * 5
    # Observations are (seed, episode, time): each begins where a reset has put it, by a seed of its own.
    assert all(episode.observations[0][1:].tolist() == [0, 0] for episode in found)
    assert len({float(episode.observations[0][0]) for episode in found}) == 5


def test_episodes_without_an_end_are_counted() -> None:
    lengths = {"0": 10_000, "1": 9_999, "2": 10_000}
    manifest = {"episodes": {name: {"length": length} for name, length in lengths.items()}}
    assert recordings.cut(manifest) == "2 of them were cut off after 10,000 steps"
    assert not recordings.cut({"episodes": {"1": manifest["episodes"]["1"]}})


def test_a_full_disk_is_named_with_the_folder(tmp_path: Path) -> None:
    def write() -> Iterator[Episode]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield  # a generator: the disk is full once writing has begun

    output = str(tmp_path / "data")
    with pytest.raises(RunError, match=f"^{re.escape(output)}: .*No space left on device"):
        recordings.store(output, write(), registry.make(CARTPOLE).spec, {}, minari=False)
