"""The device collector against a policy stepped by hand."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxrl import envs
from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep
from jaxrl.experience import device
from jaxrl.experience.rollout_loop import count_operations
from jaxrl.networks import normalizer
from jaxrl.types import Acting, Axis
from tests import rounding
from tests.compiled_programs import Noise, over_time, start, tiny_program, with_statistics
from tests.experience.host.playing import assert_totals

T, B, L = 16, 8, 4


@pytest.fixture(scope="module")
def two_rollouts():
    """(agent, state before each and after all, trajectories, totals) of two rollouts with resets inside."""
    program = tiny_program(network__separate_value=True, ppo__sequence_length=L)
    rollout = jax.jit(program.rollout)
    states, trajectories, totals = [start(program)], [], []
    for i in range(2):
        state, trajectory, total = rollout(states[-1].replace(iteration=jnp.int32(i)))
        states.append(state)
        trajectories.append(trajectory)
        totals.append(total)
    done = trajectories[1].terminated | trajectories[1].truncated
    assert done[:-1].any()
    return program.agent, states, trajectories, totals


@pytest.fixture(scope="module")
def by_hand(two_rollouts):
    """The policy's outputs in the second rollout, step by step from the carry it began with."""
    agent, states, trajectories, _ = two_rollouts
    second = trajectories[1]
    return over_time(
        agent, states[1].learner.policy.params, second.obs, states[1].collector.carry, second.reset
    )


@pytest.mark.slow
def test_values_and_log_probabilities_equal_a_policy_stepped_by_hand(two_rollouts, by_hand):
    _, _, (_, second), _ = two_rollouts
    distribution, value, _ = by_hand
    np.testing.assert_allclose(second.extras["log_prob"], distribution.log_prob(second.action), atol=1e-5)
    np.testing.assert_allclose(second.extras["value"], value, atol=1e-5)
    assert np.asarray(second.extras["log_prob"]).std() > 0.1


@pytest.mark.slow
def test_stored_carry_is_the_one_before_the_first_step_of_its_chunk(two_rollouts, by_hand):
    # correctness 2: with the carry after that step, the update would show the first observation twice.
    _, _, (_, second), _ = two_rollouts
    carries = by_hand[2]
    for stored, carry in zip(jax.tree.leaves(second.carry), jax.tree.leaves(carries), strict=True):
        assert stored.shape == (T // L, B, 8)
        np.testing.assert_allclose(stored, carry[0:T:L], atol=1e-5)
        assert (np.abs(stored - carry[1 : T + 1 : L]).max(axis=(1, 2)) > 1e-2).all()


@pytest.mark.slow
def test_carry_lives_on_across_rollouts(two_rollouts, by_hand):
    # correctness 23: a rollout is a slice of time, not an episode.
    _, states, (first, second), _ = two_rollouts
    for before, stored in zip(
        jax.tree.leaves(states[1].collector.carry), jax.tree.leaves(second.carry), strict=True
    ):
        np.testing.assert_array_equal(stored[0], before)
        assert (jnp.abs(before).max(axis=1) > 0).all()
    for after, carry in zip(
        jax.tree.leaves(states[2].collector.carry), jax.tree.leaves(by_hand[2]), strict=True
    ):
        np.testing.assert_allclose(after, carry[-1], atol=1e-5)
    np.testing.assert_array_equal(second.obs[0], states[1].collector.obs)
    np.testing.assert_array_equal(second.reset[0], (first.terminated | first.truncated)[-1])


@pytest.mark.slow
def test_reset_marks_first_observations(two_rollouts):
    # correctness 5: the row after an end, and at the very start every row.
    _, _, (first, _), _ = two_rollouts
    assert first.reset[0].all()
    np.testing.assert_array_equal(first.reset[1:], (first.terminated | first.truncated)[:-1])


@pytest.mark.slow
def test_last_is_the_value_of_the_observation_after_the_rollout(two_rollouts):
    agent, states, (first, second), _ = two_rollouts
    np.testing.assert_allclose(first.last, second.extras["value"][0], atol=rounding.of_sums(3, 8, 8, 8))
    out = agent.forward(
        states[2].learner.policy,
        states[2].collector.obs,
        states[2].collector.carry,
        states[2].collector.reset,
        None,
    )
    np.testing.assert_allclose(second.last, out.value, atol=1e-5)


@pytest.mark.slow
def test_episode_totals_equal_sums_by_hand(two_rollouts):
    # correctness 14: raw rewards, each episode whole, also where it began in the rollout before.
    _, _, trajectories, totals = two_rollouts
    reward = np.concatenate([t.reward for t in trajectories])
    done = np.concatenate([t.terminated | t.truncated for t in trajectories])
    assert_totals(reward, np.ones_like(done), done, totals)


class Clock(JaxEnv):
    """Observation (u, steps taken, 1) with u uniform; after 5 steps truncated, and terminated too if u > 0.7.

    So the final observation can be read off the one before it.
    """

    spec = EnvSpec("test:Clock", Box.of(-9, 9, (3,)), Discrete(2), max_episode_steps=5)

    def reset(self, key):
        state = (jax.random.uniform(key), jnp.zeros((), jnp.int32))
        return state, self._observe(state)

    def step(self, key, state, action):
        u, time = state[0], state[1] + 1
        late = time >= 5
        return (u, time), TimeStep(self._observe((u, time)), jnp.float32(1), late & (u > 0.7), late)

    def _observe(self, state):
        return jnp.stack([state[0], state[1].astype(jnp.float32), jnp.float32(1)])


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_truncation_bootstraps_with_the_value_of_the_final_observation(normalized):
    # correctness 8: V(final observation, carry after the last step). correctness 26: normalised as the policy
    # sees observations. correctness 9: where both flags are set, termination wins.
    program = tiny_program(Clock(), normalize__observations=normalized)
    state = start(program)
    if normalized:
        state = with_statistics(state, rows=50)
    after, trajectory, _ = jax.jit(program.rollout)(state)
    see = lambda obs: normalizer.normalize(state.learner.policy.obs_stats, obs, 10.0)  # noqa: E731
    obs = np.asarray(trajectory.obs)
    distribution, value, carries = over_time(
        program.agent, state.learner.policy.params, see(obs), state.collector.carry, trajectory.reset
    )
    np.testing.assert_allclose(
        trajectory.extras["log_prob"], distribution.log_prob(trajectory.action), atol=1e-5
    )
    np.testing.assert_allclose(trajectory.extras["value"], value, atol=1e-5)

    final_obs = obs + np.array([0, 1, 0], np.float32)
    value, carries = jax.tree.map(np.asarray, (value, carries))
    going_on, params = np.zeros(B, bool), state.learner.policy.params
    value_of = jax.jit(lambda o, c: program.agent.forward(Acting(params, None), o, c, going_on, None).value)
    truncated, terminated = np.asarray(trajectory.truncated), np.asarray(trajectory.terminated)
    trajectory = jax.tree.map(np.asarray, trajectory)
    assert (truncated & terminated).any()
    cut = truncated & ~terminated
    assert cut[:-1].any(axis=1).sum() >= 2
    np.testing.assert_array_equal(np.asarray(trajectory.bootstrap)[~cut], 0.0)
    for t in np.flatnonzero(cut.any(axis=1)):
        row, got = cut[t], np.asarray(trajectory.bootstrap[t])[cut[t]]
        carry = jax.tree.map(lambda x: x[t + 1], carries)  # noqa: B023
        np.testing.assert_allclose(got, np.asarray(value_of(see(final_obs[t]), carry))[row], atol=1e-5)
        following = obs[t + 1] if t + 1 < T else np.asarray(after.obs)
        fresh = jax.tree.map(np.zeros_like, carry)
        wrong = {
            "V(s_t)": value[t],
            "V(reset observation)": value_of(see(following), fresh),
            "V(final, carry before)": value_of(see(final_obs[t]), jax.tree.map(lambda x: x[t], carries)),  # noqa: B023
            "V(final, zero carry)": value_of(see(final_obs[t]), fresh),
        }
        if normalized:
            wrong["V(raw final observation)"] = value_of(final_obs[t], carry)
        for name, other in wrong.items():
            assert np.abs(got - np.asarray(other)[row]).max() > 1e-3, name


@pytest.mark.slow
def test_masked_actions_are_never_taken():
    # correctness 16: the mask stored is the one the action was drawn under.
    program = tiny_program(Noise(masked=True), network__core="none")
    _, trajectory, _ = jax.jit(program.rollout)(start(program))
    allowed = np.take_along_axis(
        np.asarray(trajectory.action_mask), np.asarray(trajectory.action)[..., None], -1
    )
    assert trajectory.action_mask.sum() == T * B * 2
    assert allowed.all()
    assert (trajectory.extras["log_prob"] > -50).all()


class Echo(JaxEnv):
    """The reward is the action that arrived; always the same observation."""

    spec = EnvSpec("test:Echo", Box.of(0, 1, (1,)), Box.of(-0.5, 2.0, (1,)))

    def reset(self, key):
        return jnp.zeros(()), jnp.ones(1)

    def step(self, key, state, action):
        no = jnp.zeros((), bool)
        return state, TimeStep(jnp.ones(1), action[0], no, no)


@pytest.mark.slow
@pytest.mark.parametrize("squash", [pytest.param(False, marks=pytest.mark.slow), True])
def test_environment_gets_bounded_actions_and_the_trajectory_the_unbounded(squash):
    # correctness 15: scaling and clipping, or squashing, happen on the way to the environment only.
    program = tiny_program(
        Echo(), network__core="none", network__head="tanh_gaussian" if squash else "gaussian"
    )
    state = start(program)
    _, trajectory, _ = jax.jit(program.rollout)(state)
    action = np.asarray(trajectory.action)[..., 0]
    assert (action < -0.5).any()
    assert (action > 2.0).any()
    # The bounds are -0.5 and 2: their middle is 0.75, half their width 1.25.
    in_bounds = np.tanh(action) if squash else np.clip(action, -1.0, 1.0)
    np.testing.assert_allclose(trajectory.reward, in_bounds * 1.25 + 0.75, atol=1e-5)
    out = program.agent.forward(
        state.learner.policy, state.collector.obs, state.collector.carry, state.collector.reset, None
    )
    mean = float(out.distribution.mean[0, 0])
    expected = scipy.stats.norm.logpdf(action, mean, 1.0)
    if squash:
        expected -= np.log(1 - np.tanh(action.astype(np.float64)) ** 2)
    np.testing.assert_allclose(trajectory.extras["log_prob"], expected, atol=1e-4)


@pytest.mark.slow
def test_multi_discrete_actions():
    # correctness 16.
    program = tiny_program(envs.make("jaxrl:ProbeMultiDiscrete"), network__core="none")
    state = start(program)
    _, trajectory, _ = jax.jit(program.rollout)(state)
    assert trajectory.action.shape == (T, B, 2)
    obs, action = np.asarray(trajectory.obs), np.asarray(trajectory.action)
    c = obs.argmax(axis=-1)
    right = (action[..., 0] == (c == 1)) & (action[..., 1] == (c + 1) % 3)
    np.testing.assert_array_equal(trajectory.reward, right)
    assert 0 < right.sum() < T * B


@pytest.mark.slow
def test_every_environment_has_keys_of_its_own(two_rollouts):
    # correctness 25: with equal keys the environments would be copies of one another, or of the last rollout.
    _, _, (first, second), _ = two_rollouts
    assert len(np.unique(np.concatenate([first.reward, second.reward]))) == 2 * T * B
    # Here all see the same observation for ever, so that actions differ by their noise alone.
    program = tiny_program(Echo(), network__core="none")
    _, trajectory, _ = jax.jit(program.rollout)(start(program))
    assert len(np.unique(trajectory.action)) == T * B


@pytest.mark.slow
def test_keys_depend_on_the_global_index_only():
    # correctness 25 and 12: dividing the environments over devices changes none of them.
    one = tiny_program(network__core="none", env__stagger=True)
    many = tiny_program(axis=Axis("data", 2), network__core="none", env__stagger=True)

    def run(program):
        return program.rollout(program.init(jax.random.key(3)))[:2]

    state, trajectory = jax.jit(lambda: run(one))()
    on_devices = jax.vmap(lambda _: run(many), axis_name="data", axis_size=2, in_axes=None)
    device_state, device_trajectory = jax.jit(lambda: on_devices(None))()
    np.testing.assert_allclose(device_state.collector.obs.reshape(B, 3), state.collector.obs, atol=1e-6)
    rows = lambda t: {"reward": t.reward, "action": t.action, **t.extras}  # noqa: E731
    for name, expected in rows(trajectory).items():
        joined = np.swapaxes(rows(device_trajectory)[name], 0, 1).reshape(T, B)
        np.testing.assert_allclose(joined, expected, atol=1e-5, err_msg=name)
    # Parameters are identical everywhere.
    for leaf in jax.tree.leaves(device_state.learner.policy.params):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[0], leaf.shape))


@pytest.mark.slow
def test_environments_start_desynchronised():
    # correctness 24: with a fixed time limit all would otherwise end at the same step, for ever. Episodes
    # that were cut off early are not reported.
    fixed = Noise(terminate=0.0, truncate=0.0, max_episode_steps=T)
    program = tiny_program(fixed, network__core="none", env__stagger=True, env__num_envs=32)
    rollout = jax.jit(program.rollout)
    state, first, totals = rollout(start(program))
    ends = np.asarray(first.truncated)
    assert (ends.sum(axis=0) >= 1).all()
    assert ends.sum(axis=1).max() < 12
    # Each first episode ends in the first rollout; none of the second can end before T steps of its own.
    assert float(totals.count) == ends.sum() - 32 == 0
    state, second, totals = rollout(state.replace(iteration=jnp.int32(1)))
    np.testing.assert_array_equal(second.truncated, ends)
    assert (totals.count, totals.length) == (32, 32 * T)


@pytest.mark.slow
def test_few_kernels_collect_the_same():
    # The form for GPUs, on a CPU: same keys, so the same actions, episodes and values of final observations.
    # So do resets in rounds.
    env, few = (Noise(truncate=0.3, masked=True) for _ in range(2))
    few.spec = dataclasses.replace(few.spec, reset_ratio=4)
    programs = [
        tiny_program(env, Axis(platform=platform), ppo__sequence_length=L)
        for env, platform in ((env, "cpu"), (few, "gpu"))
    ]
    state = start(programs[0])
    (after, expected, counts), (after_few, few, counts_few) = (
        jax.jit(program.rollout)(state) for program in programs
    )
    cut = expected.truncated & ~expected.terminated
    assert cut[-1].any()  # the last step's are computed after the loop
    assert (np.abs(expected.bootstrap[cut]) > 1e-3).any()
    assert jax.tree.structure(few) == jax.tree.structure(expected)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, few, expected)
    jax.tree.map(close, counts_few, counts)
    assert [x.dtype for x in jax.tree.leaves(few)] == [x.dtype for x in jax.tree.leaves(expected)]
    data = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x  # noqa: E731
    jax.tree.map(lambda a, b: close(data(a), data(b)), after_few.collector, after.collector)


@pytest.mark.slow
def test_several_steps_in_a_turn_are_for_gpus_and_small_steps(monkeypatch):
    def several(platform):
        program = tiny_program(Noise(), Axis(platform=platform), ppo__sequence_length=L)
        state = jax.eval_shape(lambda: start(program))
        return f"unroll={device._STEPS_OF_TURN}" in str(jax.make_jaxpr(program.rollout)(state))

    assert several("gpu")
    assert not several("cpu")
    monkeypatch.setattr(device, "_MOST_OPERATIONS", 20)
    assert not several("gpu")


def test_operations_are_counted_inside_functions():
    def function(x):
        y = jnp.sin(x) + 1.0
        return jax.jit(lambda y: (y * y, y - x))(y)

    # sin, add and the call; in it, mul and sub.
    assert count_operations(jax.make_jaxpr(function)(1.0).jaxpr) == 5
