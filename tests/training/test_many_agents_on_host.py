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
from jaxrl.experience.collector import HostCollectorOptions
from jaxrl.experience.host.stepped_collector import SteppedCollector
from jaxrl.programs import host_start
from tests.envs.parallel_environments import ENTERS, LEAVES
from tests.programs.host_runs import assert_same, nothing_is_left, runtime_of, tiny_config, trainer

MODULE = "pettingzoo:tests.envs.parallel_environments"
AGENTS, EPISODE = 4, 5  # rows of an episode: four steps, and the one that begins it


def several(iterations: int, name: str = f"{MODULE}:Coming", **changes: Any) -> Any:
    fields = {"env__num_envs": 4, "stop__steps": iterations * 32, "network__core": "gru"}
    return tiny_config(iterations, name, **{**fields, **changes})


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
