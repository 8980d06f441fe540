"""Feed-forward networks by kernels: which devices and networks have them, outputs and gradients."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import networks
from jaxrl.algorithms import suitable_networks
from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Discrete, EnvSpec, MultiDiscrete, Space
from jaxrl.networks import HeadOnTrunk, ValueHead
from jaxrl.networks.kernels import dense_kernel
from jaxrl.types import Axis, PyTree
from tests.compiled_programs import Noise, start, tiny_config, tiny_program

NETWORK = dataclasses.replace(tiny_config().network, core="none", hidden_sizes=(20, 12))
GPU = Axis(platform="gpu", runs_triton=True)
VECTOR = Box((-1.0,) * 4, (1.0,) * 4, (2, 2))
ACTIONS: dict[str, Space] = {
    "categorical": Discrete(3),
    "multi_categorical": MultiDiscrete((2, 3)),
    "gaussian": Box((-1.0,) * 2, (1.0,) * 2, (2,)),
}


def values_and_gradients(dense: str, actions: Space, obs: Box | Discrete, **fields: Any) -> PyTree:
    """Leaves of the outputs for 3 x 2 observations, and the gradients of all parameters."""
    network = dataclasses.replace(NETWORK, dense=dense, **fields)
    spec = EnvSpec(name="Test", observation_space=obs, action_space=actions)
    head = networks.build_head(network, spec)
    trunk = "value" if network.separate_value else "policy"
    heads = {"head": HeadOnTrunk(head.module, "policy"), "value": HeadOnTrunk(ValueHead(), trunk)}
    built = networks.build(network, spec, heads)
    params = jax.tree.map(lambda x: x + 0.1, built.init(jax.random.key(0)))
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(3, 2, *obs.shape)), jnp.float32)
    if isinstance(obs, Discrete):
        x = jnp.asarray(rng.integers(obs.n, size=(3, 2)), jnp.int32)

    def outputs(params: PyTree) -> list[Any]:
        out = built.apply(params, x, built.initial_carry(2), jnp.zeros((3, 2), bool), None)
        return jax.tree.leaves(out.heads)

    values, pull = jax.vjp(outputs, params)
    return values, pull([jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)) for y in values])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "obs", "fields"),
    [
        ("categorical", VECTOR, {"separate_value": True}),
        ("categorical", VECTOR, {"activation": "relu"}),
        ("multi_categorical", Discrete(5), {}),
        ("gaussian", VECTOR, {"separate_value": True, "remat": True}),
    ],
)
def test_outputs_and_gradients_are_those_of_layers(
    head: str, obs: Box | Discrete, fields: dict[str, Any]
) -> None:
    expected = values_and_gradients("layers", ACTIONS[head], obs, **fields)
    with dense_kernel.interpret():
        got = values_and_gradients("pallas", ACTIONS[head], obs, **fields)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)  # noqa: E731
    jax.tree.map(close, got, expected)


@pytest.mark.slow
def test_the_kernels_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    by_kernel = dense_kernel.dense_heads

    def heads(*arguments: Any) -> Any:
        seen.append(len(arguments[3]))
        return by_kernel(*arguments)

    def trace(dense: str, **fields: Any) -> None:
        jax.eval_shape(lambda: values_and_gradients(dense, Discrete(3), VECTOR, **fields))

    monkeypatch.setattr(dense_kernel, "dense_heads", heads)
    trace("pallas", separate_value=True)
    trace("pallas")
    assert seen == [2, 1]
    trace("layers")
    trace("pallas", core="lstm")
    trace("pallas", encoder="identity")
    assert seen == [2, 1]


@pytest.mark.parametrize(
    ("fields", "axis", "chosen"),
    [
        ({}, GPU, "pallas"),
        ({}, Axis(platform="gpu"), "layers"),
        ({}, Axis(platform="tpu"), "layers"),
        ({}, Axis(), "layers"),
        ({"core": "lstm"}, GPU, "layers"),
        ({"layer_norm": True}, GPU, "layers"),
        ({"dense": "layers"}, GPU, "layers"),
        ({"dense": "pallas"}, GPU, "pallas"),
    ],
)
def test_auto_is_the_kernel_on_gpus_that_have_it(fields: dict[str, Any], axis: Axis, chosen: str) -> None:
    network = dataclasses.replace(NETWORK, **fields)
    networks.check_platform(network, axis)
    assert networks.chosen_dense(network, axis) == chosen


@pytest.mark.parametrize(
    ("fields", "axis", "rule"),
    [
        ({}, Axis(), "on cpu it must be layers or auto"),
        ({}, Axis(platform="gpu"), "NVIDIA GPUs since Ampere (compute capability 8.0)"),
        ({"core": "gru"}, GPU, "needs an mlp without layer_norm, and `network.core` (='gru') none"),
    ],
)
def test_what_the_kernel_does_not_serve_is_refused(fields: dict[str, Any], axis: Axis, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        networks.check_platform(dataclasses.replace(NETWORK, dense="pallas", **fields), axis)
    assert rule in str(caught.value)


def test_a_faulty_kernel_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = dataclasses.replace(tiny_config(), network=NETWORK)
    device = jax.devices()[0]
    monkeypatch.setattr(networks, "dense_fault", lambda network: None)
    assert suitable_networks.network_on(config, GPU, device).network.dense == "pallas"
    monkeypatch.setattr(networks, "dense_fault", lambda network: "failed: no such instruction")
    with caplog.at_level(logging.WARNING):
        assert suitable_networks.network_on(config, GPU, device).network.dense == "layers"
    assert "network.dense=auto: layers, as the kernel failed: no such instruction" in caplog.text


@pytest.mark.slow
def test_an_iteration_is_that_with_layers() -> None:
    fields: dict[str, Any] = {"network__core": "none", "network__separate_value": True}
    build = lambda dense: tiny_program(Noise(truncate=0.3), Axis(), network__dense=dense, **fields)  # noqa: E731
    layers = build("layers")
    state = start(layers)
    expected, _ = jax.jit(layers.iterate)(state)
    with dense_kernel.interpret():
        got, _ = jax.jit(build("pallas").iterate)(state)
    got, expected = got.learner, expected.learner
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # noqa: E731
    jax.tree.map(close, got.policy.params, expected.policy.params)
    before = state.learner.policy.params
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a != b).any(), got.policy.params, before)))
