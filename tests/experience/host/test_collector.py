"""The host collector against the device collector on the same transitions, and against a plain loop."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.algorithms.advantage import gae
from jaxrl.envs.base import Box, Discrete, EnvSpec
from jaxrl.envs.host_env import HostOptions, HostStep
from jaxrl.networks import normalizer
from jaxrl.types import Acting
from tests.compiled_programs import loud, over_time, rollout_keys, start, tiny_agent, tiny_program
from tests.experience.host.host_env import Playback, record
from tests.experience.host.playing import B, L, T, assert_totals, keys_of, stepped

ROLLOUTS = 3
LENGTH = T * ROLLOUTS


@pytest.fixture(scope="module")
def device():
    """(program, initial state, its rollout of LENGTH steps, what the environments did in it)."""
    program = tiny_program(ppo__rollout_length=LENGTH, ppo__sequence_length=L)
    state = start(program)
    _, trajectory, _ = jax.jit(program.rollout)(state)
    recorded = record(program, state, LENGTH)
    np.testing.assert_array_equal(recorded["obs"], trajectory.obs)
    cut = recorded["truncated"] & ~recorded["terminated"]
    assert (cut.sum(axis=0) > 0).any()
    return program, state, jax.tree.map(np.asarray, trajectory), recorded


def collect(program, state, env, rollouts=ROLLOUTS, obs_stats=None):
    collector = stepped(program.agent, env)
    acting = Acting(state.learner.policy.params, obs_stats)
    found = [collector.collect(None, acting, keys_of(i)) for i in range(rollouts)]
    return collector, [jax.tree.map(np.asarray, t) for _, t, _ in found], [totals for _, _, totals in found]


@pytest.fixture(scope="module")
def in_groups(device):
    """A function of a number of groups: (environment, collector, trajectories, totals), collected once."""
    program, state, _, recorded = device

    @functools.cache
    def collected(num_groups):
        env = Playback(program.env.spec, recorded, num_groups=num_groups)
        return env, *collect(program, state, env)

    return collected


@pytest.fixture(
    scope="module",
    params=[pytest.param(1, id="synchronous"), pytest.param(2, id="double-buffered", marks=pytest.mark.slow)],
)
def host(request, in_groups):
    return in_groups(request.param)


def joined(trajectories):
    """All rows of consecutive rollouts, [ROLLOUTS * T, B]."""
    names = "obs reset action reward terminated truncated bootstrap valid".split()
    rows = {name: np.concatenate([getattr(t, name) for t in trajectories]) for name in names}
    extras = jax.tree.map(lambda *x: np.concatenate(x), *(t.extras for t in trajectories))
    assert extras.keys() == {"log_prob", "value"}
    return rows | extras


@pytest.mark.slow
def test_valid_rows_are_those_of_the_device_collector(device, host):
    # correctness 10: without the rows that are no transition it is the same trajectory, row for row.
    _, _, expected, _ = device
    rows = joined(host[2])
    assert (~rows["valid"]).any(axis=0).all()
    for b in range(B):
        valid = rows["valid"][:, b]
        n = valid.sum()
        for name in ("obs", "reset", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(rows[name][valid, b], getattr(expected, name)[:n, b], err_msg=name)
        # correctness 5 and 8: the carry was reset where it should be, and was live at final observations.
        np.testing.assert_allclose(rows["value"][valid, b], expected.extras["value"][:n, b], atol=1e-5)
        # The last row's bootstrap is the value after the rollout.
        np.testing.assert_allclose(rows["bootstrap"][valid, b], expected.bootstrap[:n, b], atol=1e-5)


@pytest.mark.slow
def test_rows_that_are_no_transition(host):
    # correctness 10: the true final observation, consumed with the live carry; the reset comes one row later.
    rows = joined(host[2])
    done = rows["terminated"] | rows["truncated"]
    np.testing.assert_array_equal(rows["valid"][1:], ~done[:-1])
    np.testing.assert_array_equal(rows["reset"][1:], ~rows["valid"][:-1])
    assert rows["reset"][0].all()
    dummy = ~rows["valid"]
    for name in ("reward", "terminated", "truncated", "bootstrap", "reset"):
        assert not rows[name][dummy].any(), name
    cut = (rows["truncated"] & ~rows["terminated"])[:-1]
    np.testing.assert_allclose(rows["bootstrap"][:-1][cut], rows["value"][1:][cut], atol=1e-6)


@pytest.mark.slow
def test_policy_stepped_by_hand_says_the_same(device, host):
    # correctness 1, 2 and 23: log-probabilities, values and the carry before every chunk, across rollouts.
    program, state, _, _ = device
    trajectories = host[2]
    rows = joined(trajectories)
    carry = program.agent.initial_carry(B)
    distribution, value, carries = over_time(
        program.agent, state.learner.policy.params, rows["obs"], carry, rows["reset"]
    )
    np.testing.assert_allclose(rows["log_prob"], distribution.log_prob(rows["action"]), atol=1e-5)
    np.testing.assert_allclose(rows["value"], value, atol=1e-5)
    assert rows["log_prob"].std() > 0.1
    for i, trajectory in enumerate(trajectories):
        for stored, by_hand in zip(jax.tree.leaves(trajectory.carry), jax.tree.leaves(carries), strict=True):
            assert stored.shape == (T // L, B, 8)
            np.testing.assert_allclose(stored, by_hand[i * T : (i + 1) * T : L], atol=1e-5)
        if i + 1 < len(trajectories):
            np.testing.assert_allclose(trajectory.last, trajectories[i + 1].extras["value"][0], atol=1e-5)


@pytest.mark.slow
def test_update_sees_the_policy_of_the_rollout(device, host):
    # correctness 1: from the stored carries, in chunks, also over rows that are no transition.
    program, state, _, _ = device
    trajectory = host[2][1]

    def chunks(x):
        return jnp.moveaxis(jnp.reshape(x, (T // L, L, *x.shape[1:])), 0, 1).reshape(L, -1, *x.shape[2:])

    carry = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), trajectory.carry)
    out = jax.jit(program.agent.apply)(
        state.learner.policy, chunks(trajectory.obs), carry, chunks(trajectory.reset), None
    )
    ratio = jnp.exp(
        out.distribution.log_prob(chunks(trajectory.action)) - chunks(trajectory.extras["log_prob"])
    )
    np.testing.assert_allclose(ratio, 1.0, atol=1e-5)
    np.testing.assert_allclose(out.value, chunks(trajectory.extras["value"]), atol=1e-5)


def test_actions_reach_the_environments_they_are_for(host):
    env, _, trajectories, _ = host
    sent = np.concatenate([np.stack(actions) for actions in env.actions], axis=1)
    np.testing.assert_array_equal(sent, joined(trajectories)["action"])


def test_masked_advantages_are_those_without_the_masked_rows(device, host):
    # correctness 7 and 10.
    _, _, expected, _ = device
    rows = joined(host[2])
    last = host[2][-1].last

    def advantages(t, last):
        fields = (t["terminated"], t["truncated"], t["bootstrap"])
        advantage, target = gae(t["reward"], t["value"], last, *fields, 0.9, 0.8)
        return np.asarray(advantage), np.asarray(target)

    masked = advantages(rows, last)
    plain = advantages(vars(expected) | expected.extras, expected.last)
    compared = 0
    for b in range(B):
        valid = rows["valid"][:, b]
        # Up to the last end that both saw: behind it they look into different futures.
        n = valid.sum()
        end = np.flatnonzero((expected.terminated | expected.truncated)[:n, b]).max()
        for x, y in zip(masked, plain, strict=True):
            np.testing.assert_allclose(x[valid, b][: end + 1], y[: end + 1, b], atol=1e-4)
        compared += end + 1
    assert compared > 0.5 * LENGTH * B


def test_trajectory_is_the_device_collectors_in_structure(device, host):
    expected, got = device[2], host[2][0]
    for name, value in vars(expected).items():
        if name == "valid":
            continue
        for x, y in zip(jax.tree.leaves(getattr(got, name)), jax.tree.leaves(value), strict=True):
            assert x.dtype == y.dtype, name
            assert x.shape[-1:] == y.shape[-1:], name
    assert (got.valid.dtype, got.valid.shape) == (bool, (T, B))


def test_episode_totals(device, host):
    # correctness 14: raw, whole, also those that began in the rollout before.
    rows = joined(host[2])
    assert_totals(rows["reward"], rows["valid"], rows["terminated"] | rows["truncated"], host[3])


def test_totals_report_the_game_and_not_the_life(device):
    # correctness 11: only every other end is the game's.
    program, state, _, recorded = device
    done = recorded["terminated"] | recorded["truncated"]
    game_over = done & (done.cumsum(axis=0) % 2 == 0)
    env = Playback(program.env.spec, recorded, game_over=game_over)
    _, trajectories, totals = collect(program, state, env)
    n = joined(trajectories)["valid"].sum(axis=0)
    returns, lengths = 0.0, 0
    for b in range(B):
        ends = np.flatnonzero(game_over[: n[b], b])
        if len(ends):
            returns += recorded["reward"][: ends[-1] + 1, b].sum()
            lengths += ends[-1] + 1
    assert sum(float(x.count) for x in totals) == sum(game_over[: n[b], b].sum() for b in range(B)) > 0
    np.testing.assert_allclose(sum(x.episode_return for x in totals), returns, rtol=1e-5)
    assert sum(float(x.length) for x in totals) == lengths


def test_first_episodes_of_staggered_environments_are_not_reported(device, in_groups):
    program, state, _, recorded = device
    collector = stepped(program.agent, Playback(program.env.spec, recorded), staggered=True)
    acting = state.learner.policy
    found = [collector.collect(None, acting, keys_of(i))[2].count for i in range(ROLLOUTS)]
    assert sum(found) == sum(x.count for x in in_groups(1)[3]) - B


@pytest.mark.slow
def test_policy_sees_normalised_observations(device):
    # correctness 26: the final observation of a truncation too.
    program, state, _, recorded = device
    seen = jnp.asarray(np.random.default_rng(0).normal(0.5, 2.0, (50, 3)), jnp.float32)
    stats = normalizer.update(normalizer.init(seen[0]), seen)
    env = Playback(program.env.spec, recorded)
    _, trajectories, _ = collect(program, state, env, obs_stats=stats)
    rows = joined(trajectories)
    carry = program.agent.initial_carry(B)
    obs = normalizer.normalize(stats, rows["obs"], 10.0)
    _, value, _ = over_time(program.agent, state.learner.policy.params, obs, carry, rows["reset"])
    np.testing.assert_allclose(rows["value"], value, atol=1e-5)
    cut = (rows["truncated"] & ~rows["terminated"])[:-1]
    np.testing.assert_allclose(rows["bootstrap"][:-1][cut], value[1:][cut], atol=1e-5)
    assert rows["obs"].max() > 2.5  # stored raw


def test_two_groups_collect_what_one_collects(in_groups):
    one, two = (in_groups(count)[2] for count in (1, 2))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def agent_for(spec, core="lstm"):
    agent = tiny_agent(spec, network__core=core)
    return agent, loud(jax.jit(agent.network.init)(jax.random.key(0)))


@pytest.mark.slow
def test_synchronous_mode_equals_a_plain_loop_bit_for_bit():
    factory = envs.make_host("envpool:CartPole-v1(max_episode_steps=20)")
    options = HostOptions(seeds=tuple(range(B)))
    agent, params = agent_for(factory.spec)
    env = factory.start(options)
    collector, given = stepped(agent, env), Acting(params, None)
    trajectories = [collector.collect(None, given, keys_of(i))[1] for i in range(ROLLOUTS)]
    env.close()
    rows = joined([jax.tree.map(np.asarray, t) for t in trajectories])

    @jax.jit
    def act(params, obs, carry, first, noise):
        out = agent.forward(Acting(params, None), obs, carry, first, None)
        action = out.distribution.sample(noise)
        return action, out.distribution.log_prob(action), out.value, out.carry

    noise_of = jax.jit(jax.vmap(lambda key: jax.random.uniform(jax.random.split(key)[1], (T,)), out_axes=1))
    env = factory.start(options)
    step, carry = env.recv(0), agent.initial_carry(B)
    for t in range(LENGTH):
        if t % T == 0:
            noise = np.asarray(noise_of(keys_of(t // T)))
        action, log_prob, value, carry = act(params, step.obs, carry, step.first, noise[t % T])
        for name, x in (("obs", step.obs), ("action", action), ("log_prob", log_prob), ("value", value)):
            np.testing.assert_array_equal(rows[name][t], x, err_msg=f"{name} at {t}")
        env.send(0, np.asarray(action))
        step = env.recv(0)
        np.testing.assert_array_equal(rows["reward"][t], step.reward)
        np.testing.assert_array_equal(rows["valid"][t], ~step.first)
    env.close()
    assert 0 < (~rows["valid"]).sum() < LENGTH * B


class Images(Playback):
    """Two kinds of observation; the image comes with the channels first and is overwritten every step."""

    def __init__(self, recorded):
        super().__init__(EnvSpec("test:Images", SPACE, Discrete(3)), recorded)
        self._image = np.zeros((B, 2, 4, 5), np.uint8)

    def recv(self, group):
        step = super().recv(group)
        self._image[:] = np.arange(2, dtype=np.uint8)[:, None, None] + len(self.actions[group]) % 100
        rest = {k: v for k, v in vars(step).items() if k != "obs"}
        return HostStep(obs={"image": self._image, "vector": step.obs}, **rest)

    def decode(self, obs):
        return obs | {"image": jnp.moveaxis(obs["image"], -3, -1)}


SPACE = envs.base.Dict((("image", Box.of(0, 255, (4, 5, 2), np.uint8)), ("vector", Box.of(-9, 9, (3,)))))


@pytest.mark.slow
def test_images_stay_bytes_and_are_decoded_on_the_device(device):
    env = Images(device[3])
    agent, params = agent_for(env.spec, core="none")
    collector = stepped(agent, env)
    for i in range(2):
        obs = collector.collect(None, Acting(params, None), keys_of(i))[1].obs
        assert (obs["image"].dtype, obs["image"].shape) == (jnp.uint8, (T, B, 4, 5, 2))
        expected = (i * T + np.arange(T)[:, None] + np.arange(2)) % 100
        np.testing.assert_array_equal(obs["image"][:, 3, 2, 1], expected)


def test_trajectories_outlive_the_next_rollout(device):
    # JAX on CPU reads the host's arrays in place: they must not be used again.
    program, state, _, recorded = device
    collector = stepped(program.agent, Playback(program.env.spec, recorded))
    _, first, _ = collector.collect(None, state.learner.policy, keys_of(0))
    before = jax.tree.map(lambda x: np.array(x, copy=True), first)
    collector.collect(None, state.learner.policy, keys_of(1))
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, first), before)


@pytest.mark.slow
def test_noise_is_that_of_the_device_collector(device):
    # The same keys give the same actions wherever an environment runs, as long as no episode has ended.
    program, state, expected, recorded = device
    env = Playback(program.env.spec, recorded)
    collector = stepped(program.agent, env, LENGTH)
    _, got, _ = collector.collect(None, state.learner.policy, rollout_keys(program, state))
    end = np.flatnonzero((expected.terminated | expected.truncated).any(axis=1)).min()
    np.testing.assert_array_equal(got.action[: end + 1], expected.action[: end + 1])
    np.testing.assert_allclose(
        got.extras["log_prob"][: end + 1], expected.extras["log_prob"][: end + 1], atol=1e-5
    )
    assert (np.asarray(got.action) != expected.action).any()
