"""Evaluation on host environments: whole games, a fixed number per environment."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.experience.host import episodes as host_episodes
from jaxrl.experience.host.episodes import HostPlayer, quotas
from jaxrl.types import Acting
from tests.compiled_programs import loud, tiny_agent
from tests.experience.host.host_env import PlaybackFactory

E, LENGTH = 4, 60
KEYS = jax.random.split(jax.random.key(0), E)
SPEC = EnvSpec("test:Playback", Box.of(-9, 9, (3,)), Discrete(3), max_episode_steps=LENGTH)


@pytest.fixture(scope="module")
def recorded():
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2, LENGTH, E, 3)).astype(np.float32)
    ends = rng.random((LENGTH, E)) < 0.15
    return {
        "obs": obs[0],
        "final_obs": obs[1],
        "reward": rng.normal(size=(LENGTH, E)).astype(np.float32),
        "terminated": ends,
        "truncated": np.zeros_like(ends),
    }


def agent_of(spec):
    agent = tiny_agent(spec)
    return agent, Acting(loud(jax.jit(agent.network.init)(jax.random.key(0))), None)


@pytest.mark.parametrize(("num_groups", "lives"), [(1, 1), (2, 2)])
def test_every_environment_plays_its_quota(recorded, num_groups, lives):
    # correctness 21, and 11: the second of two lives ends the game.
    ends = recorded["terminated"]
    game_over = ends & (ends.cumsum(axis=0) % lives == 0)
    factory = PlaybackFactory(SPEC, recorded, game_over=game_over)
    agent, state = agent_of(SPEC)
    quota = np.array([2, 1, 2, 0])
    player = HostPlayer(agent, factory, sample=True)
    options = HostOptions(seeds=tuple(range(E)), num_groups=num_groups)
    for _ in range(2):  # every evaluation starts afresh
        episodes = player.play(options, state, KEYS, quota)
        np.testing.assert_array_equal(episodes.played, [[1, 1], [1, 0], [1, 1], [0, 0]])
        np.testing.assert_array_equal(episodes.finished, episodes.played)
        for e, count in enumerate(quota):
            last = np.flatnonzero(game_over[:, e])
            starts = np.concatenate([[0], last[:-1] + 1])
            for q in range(count):
                part = recorded["reward"][starts[q] : last[q] + 1, e]
                assert episodes.length[e, q] == len(part)
                np.testing.assert_allclose(episodes.episode_return[e, q], part.sum(), rtol=1e-5)
        assert (episodes.episode_return[~episodes.played] == 0).all()
        assert factory.last.closed


@pytest.mark.slow
def test_greedy_and_sampled_actions(recorded):
    agent, state = agent_of(SPEC)
    sent = []
    for sample in (False, True):
        factory = PlaybackFactory(SPEC, recorded)
        HostPlayer(agent, factory, sample).play(
            HostOptions(seeds=tuple(range(E))), state, KEYS, np.ones(E, int)
        )
        sent.append(np.stack(factory.last.actions[0]))
    out = agent.forward(state, recorded["obs"][0], agent.initial_carry(E), np.ones(E, bool), None)
    np.testing.assert_array_equal(sent[0][0], out.distribution.mode())
    assert (sent[0][: len(sent[1])] != sent[1][: len(sent[0])]).any()


def test_endless_episodes_are_given_up(recorded, monkeypatch):
    # An environment that is given up plays no more; the others go on.
    monkeypatch.setattr(host_episodes, "DEFAULT_MAX_EPISODE_STEPS", 7)
    spec = EnvSpec("test:Playback", SPEC.observation_space, SPEC.action_space)
    ends = np.zeros((LENGTH, E), bool)
    ends[4::5, :2] = True
    factory = PlaybackFactory(spec, recorded | {"terminated": ends})
    agent, state = agent_of(spec)
    options = HostOptions(seeds=tuple(range(E)))
    episodes = HostPlayer(agent, factory, sample=False).play(options, state, KEYS, np.full(E, 2))
    np.testing.assert_array_equal(episodes.played, [[1, 1], [1, 1], [1, 0], [1, 0]])
    np.testing.assert_array_equal(episodes.finished, [[1, 1], [1, 1], [0, 0], [0, 0]])
    np.testing.assert_array_equal(episodes.length, [[5, 5], [5, 5], [7, 0], [7, 0]])


def test_environments_are_closed_after_a_failure(recorded):
    factory = PlaybackFactory(SPEC, recorded, fail="raise", fail_at=1)
    agent, state = agent_of(SPEC)
    with pytest.raises(HostEnvError, match="broke"):
        HostPlayer(agent, factory, sample=False).play(
            HostOptions(seeds=tuple(range(E))), state, KEYS, np.ones(E, int)
        )
    assert factory.last.closed


@pytest.mark.slow
def test_evaluating_cartpole():
    factory = envs.make_host("envpool:CartPole-v1")
    agent, state = agent_of(factory.spec)
    player = HostPlayer(agent, factory, sample=False)
    options = HostOptions(seeds=tuple(range(E)))
    one, two = (player.play(options, state, KEYS, np.full(E, 2)) for _ in range(2))
    np.testing.assert_array_equal(one.episode_return, one.length)
    np.testing.assert_array_equal(one.episode_return, two.episode_return)
    assert one.length.min() > 5


def test_quotas():
    np.testing.assert_array_equal(quotas(4, 6), [2, 2, 1, 1])
    assert quotas(3, 64).sum() == 64
