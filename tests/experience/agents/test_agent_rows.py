"""Rows of several agents: against a plain loop, and rows without an agent count for nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.envs import filming, registry
from jaxrl.envs.agents import AgentRows
from jaxrl.envs.native.probe_agents import NOISE, ProbeAgents
from tests.experience.agents.shared_policy import first_state, iteration

# As `VectorEnv` folds the keys of resets.
RESET = 0x52455345
AGENTS = 4


def loop_over_one(key: Any, actions_TA: np.ndarray) -> list[dict[str, Any]]:
    """One environment, step by step in Python, with its agents in dicts."""
    env = ProbeAgents()
    reset, step, is_present = jax.jit(env.reset), jax.jit(env.step), jax.jit(env.present)
    present = lambda state: np.asarray(is_present(state))  # noqa: E731
    state, obs = reset(key)
    there = {a for a in range(AGENTS) if present(state)[a]}
    rows = []
    for t, actions in enumerate(actions_TA):
        step_key = jax.random.fold_in(key, t)
        after, found = step(step_key, state, jnp.asarray(actions))
        found = jax.tree.map(np.asarray, found)
        ended = {a for a in there if found.terminated[a] or found.truncated[a]}
        remain = {a for a in range(AGENTS) if present(after)[a]} - ended
        over = not remain
        row = {
            "obs": {a: np.asarray(obs[a]) for a in there},
            "reward": {a: float(found.reward[a]) for a in there},
            "terminated": {a for a in there if found.terminated[a]},
            "truncated": {a for a in there if found.truncated[a]},
            "final_obs": {a: np.asarray(found.obs[a]) for a in there},
            "over": over,
            "team": sum(float(found.reward[a]) for a in there),
        }
        rows.append(row)
        state, obs, there = after, found.obs, remain
        if over:
            state, obs = reset(jax.random.fold_in(step_key, RESET))
            there = {a for a in range(AGENTS) if present(state)[a]}
    return rows


@pytest.mark.slow
def test_rows_are_those_of_a_plain_loop() -> None:
    env = AgentRows(ProbeAgents())
    keys_B = jax.random.split(jax.random.key(3), 2 * AGENTS)
    actions = np.random.default_rng(0).integers(0, 2, (10, 2 * AGENTS))
    state, obs = jax.jit(env.reset)(keys_B)
    step, present = jax.jit(env.step), jax.jit(lambda state: (env.is_turn(state), env.action_mask(state)))
    keys_of = jax.jit(jax.vmap(jax.random.fold_in, (0, None)))
    expected = [
        loop_over_one(keys_B[n * AGENTS], actions[:, n * AGENTS : (n + 1) * AGENTS]) for n in range(2)
    ]
    for t in range(10):
        turn, mask, obs = map(np.asarray, (*present(state), obs))
        state, found = step(keys_of(keys_B, t), state, jnp.asarray(actions[t]))
        for n in range(2):
            row = expected[n][t]
            for a in range(AGENTS):
                b = n * AGENTS + a
                assert turn[b] == (a in row["reward"])
                assert float(found.reward[b]) == row["reward"].get(a, 0.0)
                assert bool(found.terminated[b]) == (a in row["terminated"])
                assert bool(found.truncated[b]) == (a in row["truncated"])
                assert float(found.team.reward[b]) == row["team"]
                assert bool(found.team.done[b]) == row["over"]
                assert mask[b].tolist() == [True, True, not turn[b]]
                if turn[b]:
                    np.testing.assert_array_equal(obs[b], row["obs"][a])
                    np.testing.assert_array_equal(found.final_obs[b], row["final_obs"][a])
        obs = found.obs
    assert sum(row["over"] for row in expected[0]) == 2


@pytest.mark.slow
def test_rows_without_an_agent_count_for_nothing() -> None:
    """Learning gives the same parameters, statistics and metrics, bit for bit, whatever stands in them."""
    normalize = {"normalize.observations": True, "normalize.rewards": True}
    program = iteration("ppo", **normalize)
    state, trajectory, totals = jax.jit(program.rollout)(first_state(program))
    gone = ~np.asarray(trajectory.valid)
    assert 0.3 < gone.mean() < 0.7
    assert (np.asarray(trajectory.reward)[gone] == 0).all()
    rng = np.random.default_rng(1)

    def other(x: jax.Array) -> jax.Array:
        noise = rng.integers(0, 2, x.shape) if x.dtype == jnp.int32 else rng.normal(size=x.shape) * 50
        return jnp.where(gone.reshape(*gone.shape, *[1] * (x.ndim - 2)), noise.astype(x.dtype), x)

    changed = dataclasses.replace(
        trajectory,
        obs=other(trajectory.obs),
        action=other(trajectory.action),
        extras=jax.tree.map(other, trajectory.extras),
    )
    assert not np.array_equal(changed.obs, trajectory.obs)
    learn = jax.jit(program.learning.update)
    outcomes = [learn(state, x, totals) for x in (trajectory, changed)]
    there, here = (jax.tree.leaves((after.learner, metrics)) for after, metrics in outcomes)
    assert len(there) == len(here)
    for x, y in zip(there, here, strict=True):
        np.testing.assert_array_equal(x, y)
    # The statistics are those of the rows with an agent alone: the noise of others is a thousand.
    stats = outcomes[0][0].learner.policy.obs_stats
    seen = np.asarray(trajectory.obs)[~gone]
    assert np.abs(seen).max() == 1 < NOISE
    np.testing.assert_allclose(jax.tree.leaves(stats.mean)[0], seen.mean(axis=0), atol=1e-3)


@pytest.mark.slow
def test_sequences_of_absent_agents_make_no_update() -> None:
    """Minibatches of one sequence each: the first of the agents is there in one of four steps."""
    fields = {"env.num_agents": 4, "ppo.sequence_length": 2, "ppo.num_minibatches": 96, "ppo.num_epochs": 1}
    program = iteration(**fields)
    state, trajectory, totals = jax.jit(program.rollout)(first_state(program))
    after, _ = jax.jit(program.learning.update)(state, trajectory, totals)
    taught = np.asarray(trajectory.valid).reshape(6, 2, 16).any(axis=1).sum()
    assert taught < 96
    assert int(after.learner.updates) == taught
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(after.learner.policy.params))


@pytest.mark.slow
def test_episodes_are_the_team_s() -> None:
    """Return, length and reports of a rollout against sums over its rows."""
    program = iteration(**{"env.stagger": False})
    _, trajectory, totals = jax.jit(program.rollout)(first_state(program))
    assert trajectory.reward.shape == (12, 16)
    # Three episodes of 4 steps in each of 4 environments; none is cut by the rollout.
    assert float(totals.count) == 12
    assert float(totals.length) == 48
    reward_TB = np.asarray(trajectory.reward)
    assert float(totals.episode_return) == reward_TB.sum() > 0
    of_episodes = reward_TB.reshape(3, 4, 4, 4).sum(axis=(1, 3))
    assert float(totals.lowest) == of_episodes.min() < float(totals.highest) == of_episodes.max()
    assert float(totals.tallies["hits"].value) == reward_TB.sum()
    ended = np.asarray(trajectory.terminated | trajectory.truncated)
    assert ended.sum() == 12 * AGENTS  # each agent's own episode
    assert not ended[~np.asarray(trajectory.valid)].any()


@pytest.mark.slow
def test_the_form_for_gpus_tells_the_same_of_episodes() -> None:
    """It packs what a step stores."""
    program = iteration(**{"env.stagger": False})
    packed = dataclasses.replace(program, collector=dataclasses.replace(program.collector, few_kernels=True))
    state = first_state(program)
    (_, trajectory, totals), (_, same, again) = (jax.jit(p.rollout)(state) for p in (program, packed))
    np.testing.assert_array_equal(same.valid, trajectory.valid)
    np.testing.assert_array_equal(same.reward, trajectory.reward)
    jax.tree.map(np.testing.assert_array_equal, again, totals)


@pytest.mark.slow
def test_films_show_the_environment_and_all_agents() -> None:
    film = filming.film("jaxrl:ProbeAgents", (), 0)
    shot, shots = next(film), []
    while not shot.over:
        shots.append(shot)
        shot = film.send(np.zeros(AGENTS, np.int32))
    assert len(shots) == 4
    assert shots[0].obs.shape == (AGENTS, 9)
    assert shots[0].picture().shape == (8, 32, 3)
    # The late agent begins with the second step; the others' carries begin with the first.
    assert [s.fresh.tolist() for s in shots[:2]] == [[True] * 4, [True, False, False, True]]


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        (("frame_stack(frames=2)",), "wrapper frame_stack is for one agent; jaxrl:ProbeAgents has 4"),
        (("previous_action",), "wrapper previous_action is for one agent"),
    ],
)
def test_wrappers_of_one_agent_are_refused(wrappers: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        registry.make("jaxrl:ProbeAgents", wrappers)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_wrappers_of_rows() -> None:
    wrappers = ("agent_id", "reward_scale(factor=0.5)", "time_limit(steps=3)")
    env = registry.make("jaxrl:ProbeAgents", wrappers)
    _, obs = jax.jit(env.reset)(jax.random.key(0))
    assert obs.shape == (AGENTS, 13)
    np.testing.assert_array_equal(obs[:, 9:], np.eye(AGENTS))
    rows = AgentRows(env)
    assert rows.spec.max_episode_steps == 3
    keys = jax.random.split(jax.random.key(0), AGENTS)
    (state, _), step = jax.jit(rows.reset)(keys), jax.jit(rows.step)
    rewards = []
    for _ in range(3):
        state, found = step(keys, state, jnp.zeros(AGENTS, jnp.int32))
        # Learnt from at half, reported as it is.
        assert float(found.team.reward[0]) == 2 * float(found.reward.sum())
        rewards.append(float(found.team.reward[0]))
    assert sum(rewards) > 0
    # The limit cuts off who is still there.
    assert found.truncated.tolist() == [False, False, True, True]
    assert found.team.truncated.all()
    with pytest.raises(ValueError, match="wrapper agent_id needs an environment of several agents"):
        registry.make("gymnax:CartPole-v1", ("agent_id",))
