"""Runs of several agents that share a policy: known values, counts, devices, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import algorithms
from jaxrl.config import ConfigError, from_json, resolve, to_json
from jaxrl.config.environment import check_same_spaces
from jaxrl.envs.native.probe_agents import STEPS, ProbeAgents
from jaxrl.envs.vector_mixture import vector_env
from jaxrl.experience.episodes import EpisodePlayer
from tests import processes
from tests.experience.agents.shared_policy import config, first_state, iteration

AGENTS = 4


# Rows by hand: tests/experience/agents/test_agent_rows.py; test_central_value.py there has agents that learn.
@pytest.mark.long
def test_values_of_the_probe_are_the_known_ones() -> None:
    """A policy that all share learns them for each agent, and evaluation counts the team's episodes."""
    gamma, iterations = 0.9, 100
    program = iteration(
        **{
            "env.num_envs": 32,
            "network.core": "none",
            "network.hidden_sizes": (32,),
            "ppo.rollout_length": 16,
            "ppo.num_minibatches": 4,
            "ppo.num_epochs": 4,
            "ppo.learning_rate": 5e-3,
            "ppo.gamma": gamma,
            "ppo.gae_lambda": 0.9,
            "ppo.entropy_coef": 0.001,
            "stop.steps": iterations * 32 * 16,
        }
    )
    learn = jax.jit(
        lambda state: jax.lax.scan(lambda s, _: (program.iterate(s)[0], None), state, length=iterations)[0]
    )
    policy = learn(first_state(program, seed=1)).learner.policy
    env, agent = ProbeAgents(), program.collector.agent
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, obs = reset(jax.random.key(0))
    # Of the agent that leaves after one step, after two, after four, and of the one that is cut off.
    ends, known = (1, 2, STEPS), lambda n: (1 - gamma**n) / (1 - gamma)
    for t in range(STEPS):
        out = agent.forward(
            policy, obs, agent.initial_carry(AGENTS), jnp.ones(AGENTS, bool), env.action_mask(state)
        )
        for a in np.flatnonzero(env.present(state)):
            expected = known(ends[a] - t) if a < 3 else 1 / (1 - gamma)
            assert abs(float(out.value[a]) - expected) < 0.15, (t, a)
        state, timestep = step(jax.random.key(t), state, agent.greedy(out))
        obs = timestep.obs
    keys, quota = jax.random.split(jax.random.key(5), 3), jnp.array([2, 1, 2])
    played = EpisodePlayer(agent, vector_env(env), program.collector.reports).play(
        policy, keys, quota, 2, False
    )
    np.testing.assert_array_equal(played.played, [[True, True], [True, False], [True, True]])
    np.testing.assert_array_equal(played.episode_return, np.where(played.played, 10, 0))
    np.testing.assert_array_equal(played.length, np.where(played.played, 4, 0))
    np.testing.assert_array_equal(played.tallies["hits"].value, np.where(played.played, 10, 0))


@pytest.mark.slow
def test_evaluations_play_the_episodes_of_teams() -> None:
    program = iteration(**{"network.core": "none"})
    player = EpisodePlayer(program.collector.agent, vector_env(ProbeAgents()), program.collector.reports)
    keys, quota = jax.random.split(jax.random.key(5), 3), jnp.array([2, 1, 2])
    played = player.play(first_state(program).learner.policy, keys, quota, 2, False)
    np.testing.assert_array_equal(played.played, [[True, True], [True, False], [True, True]])
    np.testing.assert_array_equal(played.length, np.where(played.played, 4, 0))
    np.testing.assert_array_equal(played.episode_return, played.tallies["hits"].value)


def test_environments_and_steps_are_counted_and_not_agents() -> None:
    c = resolve(config(**{"env.num_envs": 6, "ppo.rollout_length": 10, "ppo.num_minibatches": 3}), 2)
    assert (c.env.num_envs, c.env.num_agents, c.env.rows, c.rows_per_device) == (6, 4, 24, 12)
    assert c.steps_per_iteration == 60
    assert from_json(to_json(c)) == c
    assert resolve(config(**{"env.num_agents": 4}), 1).env.num_agents == 4
    assert resolve(config(**{"env.name": "gymnax:CartPole-v1"}), 1).env.num_agents == 0


@pytest.mark.parametrize(
    ("algorithm", "fields", "message"),
    [
        (
            "ppo",
            {"env.num_agents": 3},
            r"`env.num_agents` \(=3\) must be left out, or 4 for jaxrl:ProbeAgents",
        ),
        ("ppo", {"env.wrappers": ("previous_reward",)}, "wrapper previous_reward is for one agent"),
        ("ppo", {"env.wrappers": ("agent_id", "agent_i")}, "did you mean agent_id"),
        ("ppo", {"selfplay.enabled": True, "selfplay.groups": 4}, "is not a two-player game"),
        (
            "ppo",
            {"env.num_agents": 4, "ppo.gradient_accumulation": 3},
            "must divide .*; 4 environments of 4 agents are 16 rows, which count here",
        ),
        (
            "ppo",
            {"env.tasks": ("jaxrl:ProbeAgents", "jaxrl:ProbeValue")},
            "has several agents; tasks have one",
        ),
    ],
)
def test_wrong_configurations(algorithm: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(config(algorithm, **fields), 1)
    assert "\n" not in str(caught.value)


def test_algorithms_that_replay_refuse_several_agents() -> None:
    wanted = jaxrl.default_config("dqn")
    wanted.env.update(name="jaxrl:ProbeAgents", num_envs=4)
    resolved = resolve(wanted, 1)
    with pytest.raises(ConfigError, match="`env.num_agents` is not offered by `algorithm` .='dqn'"):
        algorithms.build_agent(resolved, ProbeAgents().spec)


def test_another_number_of_agents_is_another_environment() -> None:
    env = resolve(config(), 1).env
    with pytest.raises(ConfigError, match="has another"):
        check_same_spaces("evaluate.unseen", "gymnax:CartPole-v1", env)


_ON_DEVICES = """
import sys
import jax, numpy as np
from jaxrl.config import resolve
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.experience.agents.shared_policy import config

found = []
for count in (1, 2):
    wanted = config(**{"normalize.observations": True, "normalize.rewards": True})
    wanted.num_devices = count
    trainer = Trainer(wanted, writer=MultiWriter(()))
    rows = [trainer.update(trainer.rollout()) for _ in range(2)]
    params = jax.device_get(trainer.state.learner.policy.params)
    found.append((np.concatenate([x.ravel() for x in jax.tree.leaves(params)]), rows))
    trainer.close()
(one, rows), (two, others) = found
np.testing.assert_allclose(one, two, atol=2e-5)
for row, other in zip(rows, others, strict=True):
    for name in ("episode/return", "episode/length", "env/hits"):
        np.testing.assert_allclose(row[name], other[name], rtol=1e-6)
"""


# tests/parallel/multi_device/test_devices.py has devices; rows of agents are counted above.
@pytest.mark.long
def test_two_devices_learn_what_one_does() -> None:
    processes.succeed("-c", _ON_DEVICES, devices=2)
