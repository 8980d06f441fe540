"""Cores on one another: their sum by hand, their names, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError, NetworkConfig
from jaxrl.networks.cores import build_core
from tests import rounding
from tests.networks.test_network import NETWORK, Declared, build

L, N, F, H = 5, 3, 4, 8


def core(**fields):
    return build_core(dataclasses.replace(NetworkConfig(), **{"core_size": H, "memory_length": 3} | fields))


def problem(stack):
    rng = np.random.default_rng(0)
    x, reset = jnp.asarray(rng.normal(size=(L, N, F)), jnp.float32), jnp.asarray(rng.random((L, N)) < 0.3)
    carry = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), stack.initial_carry(N))
    params = jax.jit(stack.init)(jax.random.key(0), x, carry, reset)["params"]
    return params, x, carry, reset


@pytest.mark.slow
def test_layers_are_normalised_and_added():
    stack, one = core(core="mingru", core_layers=3), core(core="mingru")
    params, x, carry, reset = problem(stack)
    assert set(params) == {"MinGRU_0", "MinGRU_1", "MinGRU_2", "LayerNorm_0", "LayerNorm_1"}
    y, after = jax.jit(stack.apply)({"params": params}, x, carry, reset)
    expected, first = one.apply({"params": params["MinGRU_0"]}, x, carry["layer_0"], reset)
    np.testing.assert_allclose(after["layer_0"]["h"], first["h"], atol=rounding.of_sums(F, L))
    for i in (1, 2):
        normed = expected - expected.mean(axis=-1, keepdims=True)
        normed = normed / jnp.sqrt((normed**2).mean(axis=-1, keepdims=True) + 1e-6)
        added, last = one.apply({"params": params[f"MinGRU_{i}"]}, normed, carry[f"layer_{i}"], reset)
        expected = expected + added
        np.testing.assert_allclose(after[f"layer_{i}"]["h"], last["h"], atol=1e-5)
    np.testing.assert_allclose(y, expected, atol=1e-5)


@pytest.mark.slow
def test_cores_with_residuals_of_their_own_follow_one_another():
    stack, one = core(core="s5", core_layers=2), core(core="s5")
    params, x, carry, reset = problem(stack)
    assert set(params) == {"S5_0", "S5_1"}
    y, _ = jax.jit(stack.apply)({"params": params}, x, carry, reset)
    expected = x
    for i in (0, 1):
        expected, _ = one.apply({"params": params[f"S5_{i}"]}, expected, carry[f"layer_{i}"], reset)
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_one_layer_is_the_core_itself():
    # Checkpoints of before name its parameters.
    names = jax.eval_shape(build(core="gru", core_layers=1).init, jax.random.key(0))
    assert set(names) == {"MLP_0", "Recurrent_0", "value"}
    deep = build(core="gru", core_layers=2)
    names = jax.eval_shape(deep.init, jax.random.key(0))
    assert set(names) == {"MLP_0", "CoreStack_0", "value"}
    assert set(deep.initial_carry(2)["policy"]) == {"layer_0", "layer_1"}


@pytest.mark.parametrize(("name", "waits"), [("lstm", True), ("mingru", False)])
def test_a_stack_waits_where_its_layers_do(name, waits):
    assert build(core=name, core_layers=2).waits_for_the_carry is waits


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"core": "none", "core_layers": 2},
            r"`network.core_layers` \(=2\) must be 1 with `network.core` \(='none'\)",
        ),
        (
            {"core": "gtrxl", "core_heads": 3},
            r"`network.core_heads` \(=3\) must divide `network.core_size` \(=8\) with .*'gtrxl'",
        ),
        ({"core": "gated_delta", "core_heads": 3}, r"`network.core_heads` \(=3\) must divide"),
        ({"core": "slstm", "core_heads": 3}, r"`network.core_heads` \(=3\) must divide `network.core_size`"),
        (
            {"core": "ffm", "state_size": 6},
            r"`network.core_heads` \(=4\) must divide `network.state_size` \(=6\) with .*'ffm'",
        ),
        ({"core": "ffm", "core_heads": 3}, r"`network.core_heads` \(=3\) must divide `network.core_size`"),
        (
            {"core": "tests.networks.test_core_stack:Widening", "core_layers": 2},
            r"`network.core_layers` \(=2\) adds layers up: .* features from 16 as it was given, not 32",
        ),
        (
            {"core": "tests.networks.test_core_stack:Demanding"},
            r"`network.core` \(='.*Demanding'\) has the field decay without a default; only ",
        ),
    ],
)
def test_what_does_not_fit_is_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        build(**fields)


def test_a_class_gets_the_fields_that_it_declares():
    network = dataclasses.replace(
        NETWORK, core="tests.networks.test_core_stack:Curious", core_size=12, state_size=0, core_heads=3
    )
    made = build_core(dataclasses.replace(network, compute_dtype="bfloat16"))
    assert (made.size, made.state_size, made.heads, made.dtype, made.own) == (12, 12, 3, jnp.bfloat16, 5)


class Widening(Declared):
    """Returns twice the features."""

    def __call__(self, x, carry, reset):
        return jnp.concatenate([x, x], axis=-1), carry


class Demanding(Declared):
    decay: float


class Curious(Declared):
    size: int
    state_size: int
    heads: int
    dtype: jnp.dtype
    own: int = 5
