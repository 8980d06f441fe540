"""The promises of a `Trajectory`, of the device collector and of the host collectors: one test for all."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.envs.host_env import HostOptions
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Acting, Axis, Trajectory
from tests.compiled_programs import Program, loud, over_time, start, tiny_agent, tiny_config, tiny_program
from tests.experience.host.playing import B, L, T, fused, keys_of, stepped

ROLLOUTS = 3
LIMIT = 20  # steps of an episode of CartPole that does not fall before


def of_the_device(name):
    program = tiny_program(envs.make(name), ppo__sequence_length=L)
    state = start(program)
    rollout, found = jax.jit(program.rollout), []
    for i in range(ROLLOUTS):
        state, trajectory, totals = rollout(state.replace(iteration=jnp.int32(i)))
        found.append((trajectory, totals))
    return program.agent, state.learner.policy.params, found


class FinalRows(ActorCritic):
    """Gets the last observation of an episode as a row; what stands for the rest is its value there."""

    needs_final_observations = True


def of_the_device_with_final_rows(name):
    """Bootstraps by hand: the collector leaves them to the reader of the rows."""
    config, env = tiny_config(ppo__sequence_length=L), envs.make(name)
    agent = FinalRows.build(config.network, env.spec, config.normalize)
    program = Program(Iteration.build(config, env, agent, Axis()))
    state = start(program)
    rollout, found = jax.jit(program.rollout), []
    for i in range(ROLLOUTS):
        state, trajectory, totals = rollout(state.replace(iteration=jnp.int32(i)))
        assert trajectory.bootstrap is None
        following = jnp.concatenate([trajectory.extras["value"][1:], trajectory.last[None]])
        cut = trajectory.truncated & ~trajectory.terminated
        found.append((trajectory.replace(bootstrap=jnp.where(cut, following, 0.0)), totals))
    assert not all(t.valid.all() for t, _ in found)
    return agent, state.learner.policy.params, found


def of_the_host(name, groups, collector_of=stepped):
    factory = envs.make_host(name)
    agent = tiny_agent(factory.spec)
    params = loud(jax.jit(agent.network.init)(jax.random.key(0)))
    env = factory.start(HostOptions(seeds=tuple(range(B)), num_groups=groups))
    collector = collector_of(agent, env)
    found = [collector.collect(None, Acting(params, None), keys_of(i))[1:] for i in range(ROLLOUTS)]
    env.close()
    return agent, params, found


COLLECTORS = {
    "device": lambda: of_the_device(f"gymnax:CartPole-v1(max_steps_in_episode={LIMIT})"),
    "device, final rows": lambda: of_the_device_with_final_rows(
        f"gymnax:CartPole-v1(max_steps_in_episode={LIMIT})"
    ),
    "envpool": lambda: of_the_host(f"envpool:CartPole-v1(max_episode_steps={LIMIT})", 1),
    "envpool, fused": lambda: of_the_host(f"envpool:CartPole-v1(max_episode_steps={LIMIT})", 2, fused),
    "gymnasium": lambda: of_the_host(f"gymnasium:CartPole-v1(max_episode_steps={LIMIT})", 2),
}


@pytest.mark.parametrize(
    "collector",
    [pytest.param(x, marks=() if x == "device" else pytest.mark.slow) for x in COLLECTORS],
)
def test_contract(collector):
    agent, params, found = COLLECTORS[collector]()
    trajectories = [t for t, _ in found]
    for trajectory in trajectories:
        check_shapes(trajectory)
    rows = {
        name: np.concatenate([getattr(t, name) for t in trajectories])
        for name in "obs reset action reward terminated truncated bootstrap".split()
    }
    rows |= jax.tree.map(lambda *x: np.concatenate(x), *(t.extras for t in trajectories))
    valid = [np.ones((T, B), bool) if t.valid is None else np.asarray(t.valid) for t in trajectories]
    rows["valid"] = np.concatenate(valid)
    for before, trajectory in itertools.pairwise(trajectories):
        np.testing.assert_array_equal(before.next_obs, trajectory.obs[0])
    check_episodes(rows)
    check_policy(agent, params, rows, trajectories)
    check_totals(rows, [totals for _, totals in found])


def check_shapes(t: Trajectory) -> None:
    assert (t.obs.shape, t.obs.dtype) == ((T, B, 4), jnp.float32)
    assert (t.action.shape, t.action.dtype) == ((T, B), jnp.int32)
    assert t.action_mask is None
    assert (t.next_obs.shape, t.next_obs.dtype) == ((B, 4), jnp.float32)
    assert t.extras.keys() == {"log_prob", "value"}
    for x in (*t.extras.values(), t.reward, t.bootstrap):
        assert (x.shape, x.dtype) == ((T, B), jnp.float32)
    for x in (t.reset, t.terminated, t.truncated):
        assert (x.shape, x.dtype) == ((T, B), bool)
    assert (t.last.shape, t.last.dtype) == ((B,), jnp.float32)
    for x in jax.tree.leaves(t.carry):
        assert x.shape == (T // L, B, 8)


def check_episodes(rows):
    """Without the rows that are no transition, episodes follow one another (correctness 5, 10)."""
    assert rows["reset"][0].all()
    ends = cuts = 0
    for b in range(B):
        reset, reward, done, cut = (
            x[rows["valid"][:, b], b]
            for x in (
                rows["reset"],
                rows["reward"],
                rows["terminated"] | rows["truncated"],
                rows["truncated"] & ~rows["terminated"],
            )
        )
        np.testing.assert_array_equal(reset[1:], done[:-1])
        np.testing.assert_array_equal(reward, 1.0)  # CartPole pays for every step
        lengths = np.diff(np.flatnonzero(np.concatenate([[True], done])))
        assert lengths.max(initial=0) <= LIMIT
        ends, cuts = ends + done.sum(), cuts + cut.sum()
    assert ends > cuts > 0
    for name in ("reset", "reward", "terminated", "truncated", "bootstrap"):
        assert not rows[name][~rows["valid"]].any(), name


def check_policy(agent, params, rows, trajectories):
    """Values, log-probabilities and carries of the policy stepped by hand (correctness 1, 2, 8, 23)."""
    carry = agent.initial_carry(B)
    distribution, value, carries = over_time(agent, params, rows["obs"], carry, rows["reset"])
    np.testing.assert_allclose(rows["value"], value, atol=1e-5)
    np.testing.assert_allclose(rows["log_prob"], distribution.log_prob(rows["action"]), atol=1e-5)
    assert rows["log_prob"].std() > 0.01
    for i, trajectory in enumerate(trajectories):
        for stored, by_hand in zip(jax.tree.leaves(trajectory.carry), jax.tree.leaves(carries), strict=True):
            np.testing.assert_allclose(stored, by_hand[i * T : (i + 1) * T : L], atol=1e-5)
        if i + 1 < len(trajectories):
            np.testing.assert_allclose(trajectory.last, trajectories[i + 1].extras["value"][0], atol=1e-5)
    cut = rows["truncated"] & ~rows["terminated"]
    bootstrap = rows["bootstrap"]
    assert not bootstrap[~cut].any()
    # Not the value before the last step, and not that of the next episode (Pardo et al. 2018).
    following = np.concatenate([rows["value"][1:], np.zeros((1, B), np.float32)])
    after = np.concatenate([rows["reset"][1:], np.zeros((1, B), bool)])
    assert (np.abs(bootstrap - rows["value"])[cut] > 1e-6).all()
    assert (np.abs(bootstrap - following)[cut & after] > 1e-6).all()


def check_totals(rows, totals):
    done = rows["terminated"] | rows["truncated"]
    assert sum(float(t.count) for t in totals) == done.sum()
    length = 0
    for b in range(B):
        last = np.flatnonzero(done[:, b]).max(initial=-1)
        length += rows["valid"][: last + 1, b].sum()
    assert sum(float(t.length) for t in totals) == length
    assert sum(float(t.episode_return) for t in totals) == length
