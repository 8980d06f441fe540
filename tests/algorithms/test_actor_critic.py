"""The whole actor-critic: a sequence equals its steps, and nothing crosses an episode's start."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.envs import registry
from jaxrl.types import Acting
from tests.compiled_programs import Noise, loud, over_time, tiny_config

L, N = 7, 5
NETWORK, NORMALIZE = tiny_config().network, tiny_config().normalize


@functools.cache  # equal agents share their compiled programs
def build(masked=False, **fields):
    return ActorCritic.build(dataclasses.replace(NETWORK, **fields), Noise(masked=masked).spec, NORMALIZE)


def inputs(agent):
    """(params, obs, carry, reset): a carry full of numbers, resets at different places."""
    rng = np.random.default_rng(0)
    normal = lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32)  # noqa: E731
    carry = jax.tree.map(normal, agent.initial_carry(N))
    reset = np.zeros((L, N), bool)
    reset[0, 0] = reset[3, :3] = reset[6, 1] = True
    params = loud(jax.jit(agent.network.init)(jax.random.key(0)))
    return params, normal(jnp.zeros((L, N, 3))), carry, jnp.asarray(reset)


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
    assert ActorCritic.build(dataclasses.replace(NETWORK, **fields), spec, NORMALIZE).description == said


# One that goes step by step and one that scans in parallel; tests/networks/test_core_check.py has all cores.
TRUNKS = [("lstm", False), ("lstm", True), ("mingru", True), ("none", True)]


@pytest.mark.slow
@pytest.mark.parametrize(("core", "separate_value"), TRUNKS)
def test_a_sequence_equals_its_steps(core, separate_value):
    # correctness 1: the update sees whole sequences, the rollout single steps; both must say the same.
    agent = build(core=core, separate_value=separate_value)
    params, obs, carry, reset = inputs(agent)
    out = jax.jit(agent.apply)(Acting(params, None), obs, carry, reset, None)
    distribution, value, carries = over_time(agent, params, obs, carry, reset)
    np.testing.assert_allclose(out.distribution.logits, distribution.logits, atol=1e-5)
    np.testing.assert_allclose(out.value, value, atol=1e-5)
    for got, expected in zip(jax.tree.leaves(out.carry), jax.tree.leaves(carries), strict=True):
        np.testing.assert_allclose(got, expected[-1], atol=1e-5)


# Every core by itself: tests/networks/test_core_check.py. A single trunk is as each of two.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("core", "separate_value"),
    [pytest.param("lstm", False, marks=pytest.mark.long), ("lstm", True), ("mingru", True)],
)
def test_nothing_before_a_reset_is_remembered(core, separate_value):
    # correctness 5: environments 0 to 2 start an episode at step 3. Other observations before it, and another
    # carry (each of h and c, of each trunk), must not change what follows; in environments 3 and 4 they must.
    agent = build(core=core, separate_value=separate_value)
    params, obs, carry, reset = inputs(agent)
    apply, acting = jax.jit(agent.apply), Acting(params, None)
    out = apply(acting, obs, carry, reset, None)

    def changed(other):
        """bool[L, N] of logits and value together."""
        logits = (other.distribution.logits != out.distribution.logits).any(axis=-1)
        return np.asarray(logits & (other.value != out.value))

    after = changed(apply(acting, obs.at[:3].add(1.0), carry, reset, None))
    assert after[:3].all()
    assert not after[3:, :3].any()
    assert after[3:, 3:].all()
    # An episode that ended in NaN does not spoil the next: 0 * NaN would be no reset.
    diverged = apply(acting, obs.at[2, 0].set(jnp.nan), carry, reset, None)
    np.testing.assert_array_equal(diverged.value[3:, 0], out.value[3:, 0])
    for trunk, parts in carry.items():
        for name, part in parts.items():
            if name == "valid":
                continue  # of gtrxl: these flags are set already
            moved = {**carry, trunk: {**parts, name: part + 1.0}}
            other = apply(acting, obs, moved, reset, None)
            # Only one trunk moves: look at its own output.
            if trunk == "value":
                after = np.asarray(other.value != out.value)
            else:
                after = np.asarray((other.distribution.logits != out.distribution.logits).any(axis=-1))
            assert not after[:, 0].any()  # its episode starts at step 0
            assert not after[3:, :3].any()
            assert after[:3, 1:].all()
            assert after[3:, 3:].all()


@pytest.mark.slow
def test_a_separate_value_shares_nothing_with_the_policy():
    agent = build(separate_value=True)
    params, obs, carry, reset = inputs(agent)
    assert set(carry) == {"policy", "value"}
    out = lambda p: agent.apply(Acting(p, None), obs, carry, reset, None)  # noqa: E731
    value = lambda p: out(p).value.sum()  # noqa: E731
    logits = lambda p: jnp.square(out(p).distribution.logits).sum()  # noqa: E731
    by_value, by_logits = jax.jit(lambda p: (jax.grad(value)(p), jax.grad(logits)(p)))(params)
    used = [
        (bool((v != 0).any()), bool((p != 0).any()))
        for v, p in zip(jax.tree.leaves(by_value), jax.tree.leaves(by_logits), strict=True)
    ]
    assert set(used) == {(True, False), (False, True)}


def test_a_shared_trunk_serves_both():
    agent = build()
    params = jax.eval_shape(agent.network.init, jax.random.key(0))
    assert set(agent.initial_carry(2)) == {"policy"}
    # Encoder 3 -> 8, LSTM 8 -> 8, logits 8 -> 3, value 8 -> 1.
    count = (3 + 1) * 8 + (8 + 8 + 1) * 4 * 8 + (8 + 1) * 3 + (8 + 1)
    assert sum(x.size for x in jax.tree.leaves(params)) == count


def test_gain_of_the_value_is_one():
    # correctness 17: orthogonal of gain 1 (one column: of norm 1), bias 0; the hidden layer has sqrt 2.
    params = jax.jit(build(core="none").network.init)(jax.random.key(0))
    np.testing.assert_allclose(jnp.linalg.norm(params["value"]["kernel"]), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(params["value"]["bias"], 0.0)
    (hidden,) = [x for x in jax.tree.leaves(params) if x.shape == (3, 8)]
    np.testing.assert_allclose(np.linalg.svd(hidden, compute_uv=False), np.sqrt(2), rtol=1e-5)


CORES = ("lstm", "mingru", "none")


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_bfloat16_computes_and_float32_stays(core):
    # correctness 22: parameters, carry, log-probabilities and values are float32 whatever computes.
    agent = build(core=core, compute_dtype="bfloat16", separate_value=True)
    params, obs, carry, reset = inputs(agent)
    out = jax.jit(agent.apply)(Acting(params, None), obs, carry, reset, None)
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
    exact = jax.jit(build(core=core, separate_value=True).apply)(
        Acting(params, None), obs, carry, reset, None
    )
    np.testing.assert_allclose(out.value, exact.value, atol=0.1)
    assert (out.value != exact.value).any()  # the setting does something


def many(agent, rows):
    """(params, arguments of `apply`) for as many rows, with a value near 100."""
    params = jax.jit(agent.network.init)(jax.random.key(0))
    params["value"]["bias"] = params["value"]["bias"] + 100.0
    obs = jnp.asarray(np.random.default_rng(1).normal(size=(1, rows, 3)), jnp.float32)
    return params, (obs, agent.initial_carry(rows), jnp.zeros((1, rows), bool), None)


@pytest.mark.slow
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_bfloat16_reaches_no_number_that_a_head_gives(core):
    # correctness 22 and 28: rounded to bfloat16 before a cast, values near 100 would be 0.5 apart, and a
    # thousand observations would have a dozen of them.
    agent = build(core=core, compute_dtype="bfloat16")
    params, arguments = many(agent, 1000)
    out = jax.jit(agent.apply)(Acting(params, None), *arguments)
    exact = jax.jit(build(core=core).apply)(Acting(params, None), *arguments)
    for got, expected in ((out.value, exact.value), (out.distribution.logits, exact.distribution.logits)):
        assert len(np.unique(got)) > 0.9 * len(np.unique(expected))
        # What is left is the rounding of features, 8 bits of each, and of what they were computed from.
        spread = np.asarray(expected).std()
        np.testing.assert_allclose(got, expected, atol=0.1 * spread)


@pytest.mark.slow
# The backward of a scan, that of a parallel one, and none. tests/networks/kernels/ has those of other cores.
@pytest.mark.parametrize(
    "core",
    [
        *("lstm", "s5", "none"),
        *(
            pytest.param(x, marks=pytest.mark.long)
            for x in ("mingru", "ffm", "slstm", "gated_delta", "mlstm", "gtrxl")
        ),
    ],
)
def test_bfloat16_gradients_are_those_of_float32(core):
    # correctness 28: above all of biases, which are sums over all rows.
    def gradient(**fields):
        agent = build(core=core, separate_value=True, **fields)
        params, arguments = many(agent, 16_384)

        def loss(params):
            out = agent.apply(Acting(params, None), *arguments)
            return out.value.sum() + out.distribution.log_prob(jnp.zeros((1, 16_384), jnp.int32)).sum()

        return jax.jit(jax.grad(loss))(params)

    exact, got = gradient(), gradient(compute_dtype="bfloat16")
    for (path, expected), x in zip(
        jax.tree_util.tree_leaves_with_path(exact), jax.tree.leaves(got), strict=True
    ):
        error = np.linalg.norm(x - expected) / max(np.linalg.norm(expected), 1e-3)
        assert error < 0.05, (jax.tree_util.keystr(path), error)
    np.testing.assert_allclose(got["value"]["bias"], 16_384, rtol=1e-6)


@pytest.mark.slow
def test_masks_reach_the_distribution():
    # correctness 16.
    agent = build(masked=True)
    params, obs, carry, reset = inputs(agent)
    mask = jnp.ones((L, N, 3), bool).at[2, 1, 0].set(False)
    out = jax.jit(agent.apply)(Acting(params, None), obs, carry, reset, mask)
    log_prob = out.distribution.log_prob(jnp.zeros((L, N), jnp.int32))
    assert log_prob[2, 1] < -1e6
    assert (log_prob.at[2, 1].set(0.0) > -100).all()
