"""What a `Trajectory` promises, of the device collector and of the host collectors: one test for all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.base import HostOptions
from jaxrl import networks
from jaxrl.types import PolicyState, Trajectory
from tests.programs import loud, over_time, start, tiny_config, tiny_program
from tests.rollout.host.playing import B, L, T, fused, keys_of, stepped

ROLLOUTS = 3
LIMIT = 20  # steps of an episode of CartPole that does not fall before


def of_the_device(name):
    program = tiny_program(envs.make(name), ppo__sequence_length=L)
    state = start(program)
    rollout, found = jax.jit(program.rollout), []
    for i in range(ROLLOUTS):
        state, trajectory, totals = rollout(state.replace(iteration=jnp.int32(i)))
        found.append((trajectory, totals))
    return program.policy, state.learner.policy.params, found


def of_the_host(name, groups, collector_of=stepped):
    factory = envs.make_host(name)
    policy = networks.build(tiny_config().network, factory.spec)
    params = loud(jax.jit(policy.init)(jax.random.key(0)))
    env = factory.start(HostOptions(seeds=tuple(range(B)), num_groups=groups))
    collector = collector_of(policy, env)
    found = [collector.collect(None, PolicyState(params, None), keys_of(i))[1:] for i in range(ROLLOUTS)]
    env.close()
    return policy, params, found


COLLECTORS = {
    "device": lambda: of_the_device(f"gymnax:CartPole-v1(max_steps_in_episode={LIMIT})"),
    "envpool": lambda: of_the_host(f"envpool:CartPole-v1(max_episode_steps={LIMIT})", 1),
    "envpool, fused": lambda: of_the_host(f"envpool:CartPole-v1(max_episode_steps={LIMIT})", 2, fused),
    "gymnasium": lambda: of_the_host(f"gymnasium:CartPole-v1(max_episode_steps={LIMIT})", 2),
}


@pytest.mark.parametrize("collector", COLLECTORS)
def test_contract(collector):
    policy, params, found = COLLECTORS[collector]()
    trajectories = [t for t, _ in found]
    for trajectory in trajectories:
        check_shapes(trajectory)
    rows = {
        name: np.concatenate([getattr(t, name) for t in trajectories])
        for name in "obs reset action log_prob value reward terminated truncated bootstrap_value".split()
    }
    valid = [np.ones((T, B), bool) if t.valid is None else np.asarray(t.valid) for t in trajectories]
    rows["valid"] = np.concatenate(valid)
    check_episodes(rows)
    check_policy(policy, params, rows, trajectories)
    check_totals(rows, [totals for _, totals in found])


def check_shapes(t: Trajectory) -> None:
    assert (t.obs.shape, t.obs.dtype) == ((T, B, 4), jnp.float32)
    assert (t.action.shape, t.action.dtype) == ((T, B), jnp.int32)
    assert t.action_mask is None
    for x in (t.log_prob, t.value, t.reward, t.bootstrap_value):
        assert (x.shape, x.dtype) == ((T, B), jnp.float32)
    for x in (t.reset, t.terminated, t.truncated):
        assert (x.shape, x.dtype) == ((T, B), bool)
    assert (t.last_value.shape, t.last_value.dtype) == ((B,), jnp.float32)
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
    for name in ("reset", "reward", "terminated", "truncated", "bootstrap_value"):
        assert not rows[name][~rows["valid"]].any(), name


def check_policy(policy, params, rows, trajectories):
    """Values, log-probabilities and carries of the policy stepped by hand (correctness 1, 2, 8, 23)."""
    carry = policy.initial_carry(B)
    distribution, value, carries = over_time(policy, params, rows["obs"], carry, rows["reset"])
    np.testing.assert_allclose(rows["value"], value, atol=1e-5)
    np.testing.assert_allclose(rows["log_prob"], distribution.log_prob(rows["action"]), atol=1e-5)
    assert rows["log_prob"].std() > 0.01
    for i, trajectory in enumerate(trajectories):
        for stored, by_hand in zip(jax.tree.leaves(trajectory.carry), jax.tree.leaves(carries), strict=True):
            np.testing.assert_allclose(stored, by_hand[i * T : (i + 1) * T : L], atol=1e-5)
        if i + 1 < len(trajectories):
            np.testing.assert_allclose(trajectory.last_value, trajectories[i + 1].value[0], atol=1e-5)
    cut = rows["truncated"] & ~rows["terminated"]
    bootstrap = rows["bootstrap_value"]
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
