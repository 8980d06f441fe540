"""Several agents of host environments that share a policy: what learns, what is counted, known values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError, check_config, resolve
from jaxrl.envs import registry
from jaxrl.envs.host_env import HostOptions
from jaxrl.experience.host.collector import HostCollectorOptions
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.programs import host_start
from tests.envs.parallel_environments import ENTERS, LEAVES
from tests.programs.host_runs import assert_same, nothing_is_left, runtime_of, tiny_config, trainer

MODULE = "pettingzoo:tests.envs.parallel_environments"
AGENTS, EPISODE = 4, 5  # rows of an episode: four steps, and the one that begins it


def several(iterations: int, name: str = f"{MODULE}:Coming", **changes: Any) -> Any:
    return tiny_config(iterations, name, **{"env__num_envs": 4, "stop__steps": iterations * 32, **changes})


@pytest.mark.slow
def test_rows_without_an_agent_are_not_valid_and_teams_are_counted() -> None:
    """Against what is known of the environment: who is there at which of the five rows of an episode."""
    runtime = runtime_of(several(1))
    state, length = runtime.learning.initial_state(), 12
    options = HostOptions((0, 1, 2, 3), 2, 2)
    env = registry.make_host(f"{MODULE}:Coming").start(options)
    try:
        collector = SteppedCollector(runtime.agent, env, HostCollectorOptions(length, 4))
        keys = host_start.action_keys(state.key, 0, jnp.arange(4 * AGENTS))
        _, trajectory, totals = collector.collect(None, state.learner.policy, keys)
    finally:
        env.close()
    trajectory, totals = jax.device_get((trajectory, totals))
    for b in range(4 * AGENTS):
        agent = list(ENTERS)[b % AGENTS]
        for t in range(length):
            time = t % EPISODE
            acts = ENTERS[agent] <= time < LEAVES[agent]
            ends = acts and time + 1 == LEAVES[agent]
            assert trajectory.valid[t, b] == acts
            # A carry begins with an agent's first row, and rests while nobody is there.
            assert trajectory.reset[t, b] == (time <= ENTERS[agent] or time > LEAVES[agent])
            assert trajectory.truncated[t, b] == (ends and agent == "late")
            assert trajectory.terminated[t, b] == (ends and agent != "late")
            if trajectory.truncated[t, b]:  # by the value of the agent's own last observation
                after = trajectory.extras["value"][t + 1, b] if t + 1 < length else trajectory.last[b]
                assert trajectory.bootstrap[t, b] == after
    # Two episodes of each environment ended; their return is the sum over all agents.
    assert (totals.count, totals.length) == (8, 32)
    ended = trajectory.reward[: 2 * EPISODE].sum(dtype=np.float64)
    np.testing.assert_allclose(totals.episode_return, ended, rtol=1e-6)


@pytest.mark.slow
def test_what_is_said_of_agents_that_are_not_there_changes_nothing() -> None:
    # And normalisers, minibatches, evaluation and its masks work with rows of agents.
    found = []
    for noise in (False, True):
        run, recorder = trainer(several(3, f"{MODULE}:Coming(noise={noise})", env__wrappers=("agent_id",)))
        summary = run.fit()
        found.append(run.state)
        assert (summary["steps"], nothing_is_left()) == (96, True)
        assert 0 <= summary["eval_return"] <= 10.4
        rows = [row for row in recorder.rows if "episode/length" in row]
        assert rows
        assert {row["episode/length"] for row in rows} == {4}
    assert_same(*found)


# On the device: tests/experience/agents/test_central_value.py; rows are above.
@pytest.mark.long
def test_agents_that_push_learn_with_the_state_of_the_whole() -> None:
    changes = {"network__central_value": True, "network__encoder": "mlp", "network__core": "none"}
    run, _ = trainer(several(2, f"{MODULE}:Pushing(max_cycles=7)", **changes))
    summary = run.fit()
    assert run.config.env.wrappers == ("central_observation",)
    assert (run.config.env.num_agents, run.config.env.rows) == (2, 8)
    assert np.isfinite(summary["eval_return"])


@pytest.mark.slow
def test_minibatches_are_of_the_rows_of_all_agents() -> None:
    config = several(1, env__num_envs=2, ppo__num_minibatches=8, ppo__sequence_length=0)
    config.ppo.rollout_length = 5  # 8 minibatches of 2 environments would need a multiple of 4
    assert check_config(config).env.rows == 2  # As far as is known before the environment is made.
    assert resolve(config, 1).env.rows == 8
    config.ppo.num_minibatches = 12
    with pytest.raises(ConfigError, match="2 environments of 4 agents are 8 rows, which count here"):
        resolve(config, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network.central_value": True}, "needs a state of the whole environment"),
        ({"env.num_agents": 3}, "must be left out, or 4 for pettingzoo:"),
        ({"host.num_groups": 3}, r"`host.num_groups` \(=3\) must divide `env.num_envs` \(=4\)"),
    ],
)
def test_wrong_configurations_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve(several(1, **changes), 1)
    assert "\n" not in str(caught.value)


# On the device: tests/training/test_many_agents.py; the rows of agents on the host are above.
@pytest.mark.long
def test_values_are_the_known_ones() -> None:
    """As of `jaxrl:ProbeAgents`, whose rules the environment has; 51,200 steps."""
    gamma = 0.9
    name = f"{MODULE}:Coming(bonus=0)"
    config = tiny_config(1, name, env__num_envs=32, network__core="none", network__hidden_sizes=(32,))
    config.normalize.update(observations=False, rewards=False)
    config.ppo.update(rollout_length=16, num_minibatches=4, num_epochs=4, learning_rate=5e-3, gamma=gamma)
    config.ppo.update(gae_lambda=0.9, entropy_coef=0.001, sequence_length=0)
    config.stop.steps = 100 * 32 * 16
    config.evaluate.episodes = 5
    run, _ = trainer(config)
    assert run.fit()["eval_return"] == 10
    env = registry.make_host(name).start(HostOptions((7,)))
    agent = runtime_of(config).agent
    known = {"first": (1,), "second": (2, 1), "third": (4, 3, 2, 1), "late": (None,) * 3}
    try:
        for t in range(4):
            step = env.recv(0)
            obs, mask = env.decode(step.obs), env.action_mask(step.obs)
            acting, carry = run.state.learner.policy, agent.initial_carry(AGENTS)
            out = agent.forward(acting, jnp.array(obs), carry, jnp.ones(AGENTS, bool), jnp.array(mask))
            for b, who in enumerate(ENTERS):
                if ENTERS[who] <= t < LEAVES[who]:
                    left = known[who][t - ENTERS[who]]
                    expected = (1 - gamma**left if left else 1) / (1 - gamma)
                    assert abs(float(out.value[b]) - expected) < 0.15, (t, who)
            env.send(0, np.asarray(agent.greedy(out)))
    finally:
        env.close()
