"""The whole policy: one pass over a sequence equals step by step, and nothing crosses an episode's start."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs import registry
from jaxrl import networks
from jaxrl.config import ConfigError
from jaxrl.networks import Core
from jaxrl.types import Axis
from tests.programs import Noise, loud, over_time, tiny_config

L, N = 7, 5
NETWORK = tiny_config().network
GPU = Axis(platform="gpu", runs_triton=True)


@functools.cache  # equal policies share their compiled programs
def build(masked=False, **fields):
    return networks.build(dataclasses.replace(NETWORK, **fields), Noise(masked=masked).spec)


def inputs(policy):
    """(params, obs, carry, reset): a carry full of numbers, resets at different places."""
    rng = np.random.default_rng(0)
    normal = lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    carry = jax.tree.map(normal, policy.initial_carry(N))
    reset = np.zeros((L, N), bool)
    reset[0, 0] = reset[3, :3] = reset[6, 1] = True
    params = loud(jax.jit(policy.init)(jax.random.key(0)))
    return params, normal(jnp.zeros((L, N, 3))), carry, jnp.asarray(reset)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"core": "gru"}, "needs `network.core` (='gru') lstm"),
        ({"core": "none"}, "needs `network.core` (='none') lstm"),
        ({"core_size": 641}, "with float32 `network.core_size` (=641) must be at most 640"),
        (
            {"core_size": 769, "compute_dtype": "bfloat16"},
            "with bfloat16 `network.core_size` (=769) must be at most 768",
        ),
    ],
)
def test_the_kernel_is_of_an_lstm_whose_weights_fit(fields, rule):
    with pytest.raises(ConfigError) as caught:
        build(recurrence="pallas", **fields)
    assert str(caught.value).startswith("`network.recurrence` (='pallas')")
    assert rule in str(caught.value)


def test_the_kernel_of_gpus_has_a_limit_of_its_own():
    network = dataclasses.replace(NETWORK, core="lstm", recurrence="pallas", core_size=256)
    networks.check_platform(network, GPU)
    with pytest.raises(
        ConfigError, match=r"on gpu with float32 `network.core_size` \(=257\) must be at most 256"
    ):
        networks.check_platform(dataclasses.replace(network, core_size=257), GPU)


@pytest.mark.parametrize(
    ("axis", "rule"),
    [
        (Axis(), "a kernel for TPUs and GPUs; on cpu it must be scan or auto"),
        (Axis(platform="gpu"), "NVIDIA GPUs since Ampere (compute capability 8.0)"),
    ],
)
def test_devices_without_the_kernel_are_refused(axis, rule):
    network = dataclasses.replace(NETWORK, core="lstm", recurrence="pallas")
    with pytest.raises(ConfigError) as caught:
        networks.check_platform(network, axis)
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "axis", "chosen"),
    [
        ({}, GPU, "pallas"),
        ({}, Axis(platform="gpu"), "scan"),
        ({}, Axis(platform="tpu"), "scan"),
        ({}, Axis(), "scan"),
        ({"core_size": 257}, GPU, "scan"),
        ({"core": "gru"}, GPU, "scan"),
        ({"recurrence": "scan"}, GPU, "scan"),
        ({"recurrence": "pallas"}, Axis(platform="tpu"), "pallas"),
    ],
)
def test_auto_is_the_kernel_on_gpus_that_have_it(fields, axis, chosen):
    network = dataclasses.replace(NETWORK, **{"core": "lstm", "recurrence": "auto"} | fields)
    networks.check_platform(network, axis)
    assert networks.chosen_recurrence(network, axis) == chosen


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("jaxrl:ProbeValue", {}, "mlp 8, lstm 8, categorical"),
        ("gymnax:Pendulum-v1", {"core": "none", "hidden_sizes": (8, 4)}, "mlp 8 4, feed-forward, gaussian"),
        ("gymnax:Breakout-MinAtar", {"core": "gru"}, "minatar 8, gru 8, categorical"),
    ],
)
def test_the_description_says_what_auto_stands_for(name, fields, said):
    spec = registry.spec_of(name, ())
    assert networks.describe(dataclasses.replace(NETWORK, **fields), spec) == said


TRUNKS = [("lstm", False), ("lstm", True), ("gru", True), ("mingru", True), ("lru", True), ("none", True)]


@pytest.mark.parametrize(("core", "separate_value"), TRUNKS)
def test_a_sequence_equals_its_steps(core, separate_value):
    # correctness 1: the update sees whole sequences, the rollout single steps; both must say the same.
    policy = build(core=core, separate_value=separate_value)
    params, obs, carry, reset = inputs(policy)
    out = jax.jit(policy.apply)(params, obs, carry, reset, None)
    distribution, value, carries = over_time(policy, params, obs, carry, reset)
    np.testing.assert_allclose(out.distribution.logits, distribution.logits, atol=1e-5)
    np.testing.assert_allclose(out.value, value, atol=1e-5)
    for got, expected in zip(jax.tree.leaves(out.carry), jax.tree.leaves(carries), strict=True):
        np.testing.assert_allclose(got, expected[-1], atol=1e-5)


@pytest.mark.parametrize(("core", "separate_value"), TRUNKS[:-1])
def test_nothing_before_a_reset_is_remembered(core, separate_value):
    # correctness 5: environments 0 to 2 start an episode at step 3. Other observations before it, and another
    # carry (each of h and c, of each trunk), must not change what follows; in environments 3 and 4 they must.
    policy = build(core=core, separate_value=separate_value)
    params, obs, carry, reset = inputs(policy)
    apply = jax.jit(policy.apply)
    out = apply(params, obs, carry, reset, None)

    def changed(other):
        """bool[L, N] of logits and value together."""
        logits = (other.distribution.logits != out.distribution.logits).any(axis=-1)
        return np.asarray(logits & (other.value != out.value))

    after = changed(apply(params, obs.at[:3].add(1.0), carry, reset, None))
    assert after[:3].all()
    assert not after[3:, :3].any()
    assert after[3:, 3:].all()
    # An episode that ended in NaN does not spoil the next: 0 * NaN would be no reset.
    diverged = apply(params, obs.at[2, 0].set(jnp.nan), carry, reset, None)
    np.testing.assert_array_equal(diverged.value[3:, 0], out.value[3:, 0])
    for trunk, parts in carry.items():
        for name, part in parts.items():
            moved = {**carry, trunk: {**parts, name: part + 1.0}}
            other = apply(params, obs, moved, reset, None)
            # Only one trunk moves: look at its own output.
            if trunk == "value":
                after = np.asarray(other.value != out.value)
            else:
                after = np.asarray((other.distribution.logits != out.distribution.logits).any(axis=-1))
            assert not after[:, 0].any()  # its episode starts at step 0
            assert not after[3:, :3].any()
            assert after[:3, 1:].all()
            assert after[3:, 3:].all()


def test_a_separate_value_shares_nothing_with_the_policy():
    policy = build(separate_value=True)
    params, obs, carry, reset = inputs(policy)
    assert set(carry) == {"policy", "value"}
    value = lambda p: policy.apply(p, obs, carry, reset, None).value.sum()  # noqa: E731
    logits = lambda p: jnp.square(policy.apply(p, obs, carry, reset, None).distribution.logits).sum()  # noqa: E731
    by_value, by_logits = jax.jit(lambda p: (jax.grad(value)(p), jax.grad(logits)(p)))(params)
    used = [
        (bool((v != 0).any()), bool((p != 0).any()))
        for v, p in zip(jax.tree.leaves(by_value), jax.tree.leaves(by_logits), strict=True)
    ]
    assert set(used) == {(True, False), (False, True)}


def test_a_shared_trunk_serves_both():
    policy = build()
    params = jax.eval_shape(policy.init, jax.random.key(0))
    assert set(policy.initial_carry(2)) == {"policy"}
    # Encoder 3 -> 8, LSTM 8 -> 8, logits 8 -> 3, value 8 -> 1.
    count = (3 + 1) * 8 + (8 + 8 + 1) * 4 * 8 + (8 + 1) * 3 + (8 + 1)
    assert sum(x.size for x in jax.tree.leaves(params)) == count


def test_gain_of_the_value_is_one():
    # correctness 17: orthogonal of gain 1 (one column: of norm 1), bias 0; the hidden layer has sqrt 2.
    params = jax.jit(build(core="none").init)(jax.random.key(0))
    np.testing.assert_allclose(jnp.linalg.norm(params["value"]["kernel"]), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(params["value"]["bias"], 0.0)
    (hidden,) = [x for x in jax.tree.leaves(params) if x.shape == (3, 8)]
    np.testing.assert_allclose(np.linalg.svd(hidden, compute_uv=False), np.sqrt(2), rtol=1e-5)


CORES = ["lstm", "gru", "mingru", "lru", "none"]


@pytest.mark.parametrize("core", CORES)
def test_bfloat16_computes_and_float32_stays(core):
    # correctness 22: parameters, carry, log-probabilities and values are float32 whatever computes.
    policy = build(core=core, compute_dtype="bfloat16", separate_value=True)
    params, obs, carry, reset = inputs(policy)
    out = jax.jit(policy.apply)(params, obs, carry, reset, None)
    action = jnp.zeros((L, N), jnp.int32)
    everything = (
        params,
        carry,
        out.carry,
        out.value,
        out.distribution.logits,
        out.distribution.log_prob(action),
        out.distribution.entropy(),
    )
    assert {x.dtype for x in jax.tree.leaves(everything)} == {jnp.dtype(jnp.float32)}
    exact = jax.jit(build(core=core, separate_value=True).apply)(params, obs, carry, reset, None)
    np.testing.assert_allclose(out.value, exact.value, atol=0.1)
    assert (out.value != exact.value).any()  # the setting does something


def many(policy, rows):
    """(params, arguments of `apply`) for as many rows, with a value near 100."""
    params = jax.jit(policy.init)(jax.random.key(0))
    params["value"]["bias"] = params["value"]["bias"] + 100.0
    obs = jnp.asarray(np.random.default_rng(1).normal(size=(1, rows, 3)), jnp.float32)
    return params, (obs, policy.initial_carry(rows), jnp.zeros((1, rows), bool), None)


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_bfloat16_reaches_no_number_that_a_head_gives(core):
    # correctness 22 and 28: rounded to bfloat16 before a cast, values near 100 would be 0.5 apart, and a
    # thousand observations would have a dozen of them.
    policy = build(core=core, compute_dtype="bfloat16")
    params, arguments = many(policy, 1000)
    out = jax.jit(policy.apply)(params, *arguments)
    exact = jax.jit(build(core=core).apply)(params, *arguments)
    for got, expected in ((out.value, exact.value), (out.distribution.logits, exact.distribution.logits)):
        assert len(np.unique(got)) > 0.9 * len(np.unique(expected))
        # What is left is the rounding of features, 8 bits of each, and of what they were computed from.
        spread = np.asarray(expected).std()
        np.testing.assert_allclose(got, expected, atol=0.1 * spread)


@pytest.mark.parametrize(
    "core",
    ["lstm", "mingru", "none", *(pytest.param(core, marks=pytest.mark.slow) for core in ("gru", "lru"))],
)
def test_bfloat16_gradients_are_those_of_float32(core):
    # correctness 28: above all of biases, which are sums over all rows.
    def gradient(**fields):
        policy = build(core=core, separate_value=True, **fields)
        params, arguments = many(policy, 16_384)

        def loss(params):
            out = policy.apply(params, *arguments)
            return out.value.sum() + out.distribution.log_prob(jnp.zeros((1, 16_384), jnp.int32)).sum()

        return jax.jit(jax.grad(loss))(params)

    exact, got = gradient(), gradient(compute_dtype="bfloat16")
    for (path, expected), x in zip(
        jax.tree_util.tree_leaves_with_path(exact), jax.tree.leaves(got), strict=True
    ):
        error = np.linalg.norm(x - expected) / max(np.linalg.norm(expected), 1e-3)
        assert error < 0.05, (jax.tree_util.keystr(path), error)
    np.testing.assert_allclose(got["value"]["bias"], 16_384, rtol=1e-6)


def test_masks_reach_the_distribution():
    # correctness 16.
    policy = build(masked=True)
    params, obs, carry, reset = inputs(policy)
    mask = jnp.ones((L, N, 3), bool).at[2, 1, 0].set(False)
    out = jax.jit(policy.apply)(params, obs, carry, reset, mask)
    log_prob = out.distribution.log_prob(jnp.zeros((L, N), jnp.int32))
    assert log_prob[2, 1] < -1e6
    assert (log_prob.at[2, 1].set(0.0) > -100).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"core": "lstn"}, r"`network.core` \(='lstn'\) is no registered name.*`lstm`"),
        ({"encoder": "mpl"}, r"`network.encoder` \(='mpl'\).*`mlp`"),
        ({"activation": "rel"}, r"`network.activation` \(='rel'\).*relu"),
    ],
)
def test_unknown_names(fields, message):
    with pytest.raises(ConfigError, match=message):
        jax.eval_shape(build(**fields).init, jax.random.key(0))


class Forgetful(nn.Module):
    """A core of a user's own that declares nothing."""

    def initial_carry(self, n):
        return {}

    def __call__(self, x, carry, reset):
        return x, carry


class Declared(Forgetful, Core):
    waits_for_the_carry = False


def test_own_core_declares_whether_it_waits():
    policy = build(core="tests.networks.test_policy:declared")
    assert policy.waits_for_the_carry is False
    assert jax.tree.leaves(jax.eval_shape(policy.init, jax.random.key(0)))
    with pytest.raises(ConfigError, match=r"must return a jaxrl.networks.Core that declares"):
        build(core="tests.networks.test_policy:undeclared")


def declared(network):
    return Declared()


def undeclared(network):
    return Forgetful()
