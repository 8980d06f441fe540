"""Epochs of minibatches: in parts, over devices, over chunks of time, and with frozen parameters."""

import fnmatch

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms import sequences
from jaxrl.algorithms.minibatches import Minibatches
from jaxrl.algorithms.optimizer import parameter_name
from jaxrl.algorithms.sequences import Batch, Dealing, join, split, take_carries, take_sequences
from jaxrl.config import ConfigError
from jaxrl.envs import registry
from jaxrl.types import Axis
from tests.algorithms.updates import assert_same_update, with_numbers
from tests.compiled_programs import start, tiny_program


def parts_of(program, obs):
    """How a minibatch of the program is divided."""
    config = program.config
    return sequences.parts(
        config.ppo.gradient_accumulation,
        chunks=config.num_chunks,
        environments=config.envs_per_device // config.ppo.num_minibatches,
        length=config.sequence_length,
        agent=program.agent,
        axis=program.axis,
        obs=obs,
    )


@pytest.mark.slow
def test_accumulated_gradients_equal_whole_ones(rolled, updated):
    # correctness 12: parts are summed and divided once by the count of all.
    _, *arguments = rolled
    program = tiny_program(ppo__sequence_length=4, ppo__gradient_accumulation=4)
    assert_same_update(jax.jit(program.update)(*arguments), updated)


@pytest.mark.slow
def test_carries_are_computed_anew_for_each_epoch_but_the_first(rolled):
    # Two epochs in one update are two updates of one, the second from the carries of the parameters between.
    _, state, trajectory, totals = rolled
    fields = {"ppo__sequence_length": 4, "ppo__num_minibatches": 1}
    one = jax.jit(tiny_program(**fields, ppo__num_epochs=1).update)
    between, _ = one(state, trajectory, totals)
    expected = one(between, trajectory.replace(carry=carries_of(between, trajectory)), totals)
    fresh = tiny_program(**fields, ppo__num_epochs=2, ppo__refresh_carries=True)
    stale = tiny_program(**fields, ppo__num_epochs=2)
    found, other = (jax.jit(program.update)(state, trajectory, totals) for program in (fresh, stale))
    flat = [
        jax.flatten_util.ravel_pytree(after.learner.policy.params)[0] for after, _ in (found, other, expected)
    ]
    np.testing.assert_allclose(flat[0], flat[2], atol=1e-6)
    assert np.abs(flat[1] - flat[2]).max() > 1e-5


def carries_of(state, trajectory):
    """The carries before chunks of 4 steps, step by step with the parameters of `state`."""
    agent = tiny_program(ppo__sequence_length=4).agent
    carry, found = jax.tree.map(lambda x: x[0], trajectory.carry), []
    for t, reset in enumerate(trajectory.reset):
        if t % 4 == 0:
            found.append(carry)
        carry = agent.forward(state.learner.policy, trajectory.obs[t], carry, reset, None).carry
    return jax.tree.map(lambda *x: jnp.stack(x), *found)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [8, 2])
def test_parts_may_divide_the_chunks_of_an_environment(rolled, updated, monkeypatch, steps):
    # With so few time steps a part, each is two chunks or one of one environment.
    _, *arguments = rolled
    monkeypatch.setitem(sequences.CPU_PART_STEPS, "recurrent", steps)
    program = tiny_program(ppo__sequence_length=4)
    parts = parts_of(program, arguments[1].obs)
    assert parts == {8: (2, 4), 2: (4, 4)}[steps]
    assert_same_update(jax.jit(program.update)(*arguments), updated)


@pytest.mark.parametrize(
    ("core", "kind"),
    [
        *(
            (x, "recurrent")
            for x in ("lstm", "gru", "slstm", "gated_delta", "linear_attention", "mamba2", "mlstm")
        ),
        *((x, "feed-forward") for x in ("mingru", "lru", "s5", "gtrxl", "ffm", "none")),
    ],
)
def test_parts_are_smaller_where_no_product_waits_for_the_carry(monkeypatch, core, kind):
    obs = jnp.zeros((16, 8, 3))
    monkeypatch.setattr(sequences, "CPU_PART_STEPS", {"recurrent": 64, "feed-forward": 16})
    program = tiny_program(network__core=core)
    # Four environments of 16 steps in a minibatch.
    expected = {"recurrent": (1, 1), "feed-forward": (1, 4)}[kind]
    assert parts_of(program, obs) == expected


def halves(trajectory, totals):
    """(the trajectories of two devices [2, ...], the totals of each)."""

    def half(tree, axis):
        return jax.tree.map(lambda x: jnp.stack(jnp.split(x, 2, axis)), tree)

    after = {"last": half(trajectory.last, 0), "next_obs": half(trajectory.next_obs, 0)}
    half_totals = jax.tree.map(lambda x: x / 2, totals).replace(lowest=totals.lowest, highest=totals.highest)
    return half(trajectory.replace(last=None, next_obs=None), 1).replace(**after), half_totals


@pytest.mark.slow
def test_two_devices_make_the_updates_of_one(rolled, updated):
    # correctness 12, on simulated devices: the same minibatches, the advantages of all devices normalised
    # together, and gradients summed over both before they are divided.
    _, state, trajectory, totals = rolled
    program = tiny_program(axis=Axis("data", 2), ppo__sequence_length=4)
    trajectory, half_totals = halves(trajectory, totals)
    update = jax.vmap(lambda trajectory: program.update(state, trajectory, half_totals), axis_name="data")
    states, metrics = jax.jit(update)(trajectory)
    for leaf in jax.tree.leaves((states.learner.policy.params, metrics)):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    assert_same_update(jax.tree.map(lambda x: x[0], (states, metrics)), updated)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chunk_parts", "environment_parts", "group_chunks"),
    [(1, 1, 2), (1, 3, 1), (2, 3, 2)],
)
def test_parts_are_joined_where_they_were_split(chunk_parts, environment_parts, group_chunks):
    length, num_envs, num_chunks = 2, 6, 4 * group_chunks
    dealing = Dealing(num_chunks, num_envs, 2, group_chunks)
    sequences = dealing.deal(jax.random.key(0), 0, num_envs // 2)
    label = jnp.arange(length * num_chunks * num_envs * 3).reshape(length * num_chunks, num_envs, 3)
    carry = jnp.arange(num_chunks * num_envs).reshape(num_chunks, num_envs)
    for m in range(dealing.num_minibatches):
        whole = jax.tree.map(lambda x, m=m: x[m], sequences)
        expected = take_sequences(label, whole, length)
        assert expected.shape == (length, 12, 3)
        parts = split(whole, chunk_parts, environment_parts)
        rows = jax.vmap(lambda part: take_sequences(label, part, length))(parts)
        count = chunk_parts * environment_parts
        assert rows.shape == (count, length, 12 // count, 3)
        np.testing.assert_array_equal(join(rows, chunk_parts, environment_parts, 4, 3), expected)
        carries = jax.vmap(lambda part: take_carries(carry, part))(parts)
        found = join(carries[:, None], chunk_parts, environment_parts, 4, 3)
        np.testing.assert_array_equal(found[0], take_carries(carry, whole))


@pytest.mark.parametrize(
    ("num_envs", "minibatches", "length", "grid"),
    [(8, 2, 4, (2, 1)), (8, 8, 0, (8, 1)), (8, 16, 2, (8, 2)), (8, 64, 0, (8, 8)), (6, 4, 0, (2, 2))],
)
def test_minibatches_beyond_the_environments_are_of_chunks_of_time(num_envs, minibatches, length, grid):
    program = tiny_program(
        env__num_envs=num_envs, ppo__num_minibatches=minibatches, ppo__sequence_length=length
    )
    dealing = Minibatches(program.config, program.agent, program.axis, lambda *_: None).dealing
    assert (dealing.group_envs, dealing.group_chunks) == grid
    assert dealing.num_minibatches == minibatches
    assert program.config.sequence_length == length or 16 // grid[1]


def of_labels(trajectory):
    """float32[T, B], each another number, and a batch that has them among its rows."""
    label = jnp.arange(trajectory.reward.size, dtype=jnp.float32).reshape(trajectory.reward.shape)
    return label, Batch.of(trajectory, trajectory.obs, {"label": label})


@pytest.mark.slow
@pytest.mark.parametrize(("minibatches", "length", "accumulation"), [(2, 4, 2), (8, 2, 1)])
def test_rows_of_a_loss_come_back_where_they_belong(minibatches, length, accumulation):
    program = tiny_program(
        env__num_envs=4,
        ppo__num_minibatches=minibatches,
        ppo__sequence_length=length,
        ppo__gradient_accumulation=accumulation,
        network__core="none",
    )
    state, trajectory, _ = jax.jit(program.rollout)(start(program))
    label, batch = of_labels(trajectory)

    def loss(params, part, key):
        total = part.reset.size * sum(jnp.square(x).sum() for x in jax.tree.leaves(params))
        noise = jnp.broadcast_to(jax.random.uniform(key), part.reset.shape)
        return total, {"loss/label": part.total(part.rows["label"])}, (part.rows["label"], noise)

    engine = Minibatches(program.config, program.agent, Axis(), loss)
    epochs = jax.jit(engine)(state.learner, batch, jax.random.key(5))
    rows, noise = epochs.per_row
    np.testing.assert_array_equal(rows, label)
    assert len(np.unique(noise)) == minibatches  # each update has a key of its own
    assert epochs.reports["loss/label"].shape == (2, minibatches)
    np.testing.assert_allclose(epochs.reports["loss/label"].mean(axis=1), label.mean(), rtol=1e-6)
    assert epochs.learner.updates == 2 * minibatches


def over_time(num_envs, minibatches, core):
    return {
        "env__num_envs": num_envs,
        "network__core": core,
        "ppo__rollout_length": 64,
        "ppo__num_minibatches": minibatches,
        "stop__steps": num_envs * 64 * 10,
    }


@pytest.mark.slow
def test_minibatches_over_time_train():
    program = tiny_program(registry.make("jaxrl:ProbeValue", ()), **over_time(1, 32, "none"))
    iterate = jax.jit(program.iterate)
    state, first = iterate(start(program))
    assert state.learner.updates == 2 * 32
    for _ in range(4):
        state, metrics = iterate(state)
    assert metrics["ppo/updates"] == 5 * 2 * 32
    # The value is 1 everywhere.
    assert metrics["loss/value"] < 0.1 * first["loss/value"]
    assert metrics["loss/value"] < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("grid", [(16, 64, "lstm"), (1, 32, "lstm")], ids=str)
def test_minibatches_over_time_start_from_their_own_carries(grid):
    # correctness 1 and 2: at unchanged parameters every ratio is 1. Four chunks of 16 environments, and all
    # sequences of the only one.
    program = tiny_program(**over_time(*grid))
    state = with_numbers(start(program), learning_rate=0.0, clip_range=1e-5)
    iterate = jax.jit(program.iterate)
    for _ in range(2):
        state, metrics = iterate(state)
        assert metrics["ppo/clip_fraction"] == 0.0
        assert metrics["ppo/approx_kl"] < 1e-11
        assert metrics["grad/norm"] > 1e-3


@pytest.mark.slow
def test_two_devices_make_the_updates_of_one_over_time():
    # correctness 12, where minibatches outnumber the environments.
    # Groups of two environments and five chunks; three of them on each device.
    fields = {"env__num_envs": 12, "ppo__rollout_length": 20, "ppo__num_minibatches": 10}
    fields["stop__steps"] = 12 * 20 * 10
    one, two = tiny_program(**fields), tiny_program(axis=Axis("data", 2), **fields)
    state, trajectory, totals = jax.jit(one.rollout)(start(one))
    expected = jax.jit(one.update)(state, trajectory, totals)
    share, half_totals = halves(trajectory, totals)
    update = jax.vmap(lambda share: two.update(state, share, half_totals), axis_name="data")
    found = jax.jit(update)(share)
    assert_same_update(jax.tree.map(lambda x: x[0], found), expected)


def moved(before, after):
    """Names of the parameters that are not what they were."""
    after = jax.tree.leaves(after)
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), after, strict=True)
    return {parameter_name(path) for (path, x), y in pairs if (np.asarray(x) != np.asarray(y)).any()}


@pytest.mark.slow
@pytest.mark.parametrize("patterns", [("params/MLP_0/*",), ("params/value/bias", "*/kernel")])
def test_frozen_parameters_stay_and_the_others_learn(rolled, patterns):
    _, state, trajectory, totals = rolled
    before = state.learner.policy.params
    names = {parameter_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(before)}
    frozen = {name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)}
    assert frozen
    assert frozen < names
    program = tiny_program(ppo__sequence_length=4, network__frozen=patterns)
    after, metrics = jax.jit(program.update)(state, trajectory, totals)
    assert moved(before, after.learner.policy.params) == names - frozen
    # They have no part in the norm that is clipped, and no moments.
    free = jax.jit(tiny_program(ppo__sequence_length=4).update)(state, trajectory, totals)[1]
    assert 0 < metrics["grad/norm"] < free["grad/norm"]
    _, unravel = jax.flatten_util.ravel_pytree(before)
    moments = [x for x in jax.tree.leaves(after.learner.opt_state) if x.ndim == 1]
    assert len(moments) == 2
    for x in moments:
        assert moved(jax.tree.map(jnp.zeros_like, before), unravel(x)) == names - frozen


def test_patterns_that_freeze_nothing_are_refused():
    with pytest.raises(
        ConfigError, match=r"`network.frozen` \(='params/MLP_7/\*'\) fits no parameter"
    ) as caught:
        tiny_program(network__frozen=("params/MLP_0/*", "params/MLP_7/*"))
    assert "params/value/bias" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_parameters_may_have_rates_of_their_own(rolled):
    program, state, trajectory, _ = rolled
    state = with_numbers(state, gae_lambda=0.0, gamma=1e-3)
    _, batch = of_labels(trajectory)

    def loss(params, part, key):
        return part.reset.size * sum(x.sum() for x in jax.tree.leaves(params)), {}, None

    rates = (("params/value/*", "gae_lambda"), ("params/*/bias", "gamma"))
    engine = Minibatches(program.config, program.agent, Axis(), loss, rates=rates)
    epochs = jax.jit(engine)(state.learner, batch, jax.random.key(5))
    after = epochs.learner.policy.params
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(state.learner.policy.params), jax.tree.leaves(after), strict=True
    ):
        name = parameter_name(path)
        rate = 0.0 if "/value/" in name else 1e-3 if name.endswith("/bias") else 1e-2
        # Adam's steps along a constant gradient are as long as the rate; there are four.
        np.testing.assert_allclose(x - y, 4 * rate, rtol=1e-2, atol=1e-6, err_msg=name)
