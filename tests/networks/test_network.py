"""The network: which devices have its kernel, and what names and parts of a user's own it takes."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from jaxrl import networks
from jaxrl.config import ConfigError
from jaxrl.networks import Core, HeadOnTrunk, ValueHead
from jaxrl.types import Axis
from tests.compiled_programs import Noise, tiny_config

NETWORK = tiny_config().network
GPU = Axis(platform="gpu", runs_triton=True)


def build(**fields):
    heads = {"value": HeadOnTrunk(ValueHead(), "policy")}
    return networks.build(dataclasses.replace(NETWORK, **fields), Noise().spec, heads)


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
    network = build(core="tests.networks.test_network:declared")
    assert network.waits_for_the_carry is False
    assert jax.tree.leaves(jax.eval_shape(network.init, jax.random.key(0)))
    with pytest.raises(ConfigError, match=r"must return a jaxrl.networks.Core that declares"):
        build(core="tests.networks.test_network:undeclared")


def declared(network):
    return Declared()


def undeclared(network):
    return Forgetful()


class Encoder(nn.Module):
    """An encoder of a user's own, with a mistake in `finish`."""

    finish: Any

    @nn.compact
    def __call__(self, obs):
        return self.finish(nn.Dense(8)(obs))


def encoder(finish):
    return lambda network, space: Encoder(finish)


sound = encoder(lambda x: x)
sums = encoder(lambda x: x.sum(axis=-1))
whole = encoder(lambda x: x.astype(jnp.int32))
several = encoder(lambda x: (x, x))
fixed = encoder(lambda x: jnp.zeros((1, 1, 8)))
choosing = encoder(lambda x: x if x.sum() > 0 else -x)
centred = encoder(lambda x: x - x.mean())
dropping = encoder(lambda x: nn.Dropout(0.5, deterministic=False)(x))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "sums",
            r"returned float32\[2, 3\] for 2 steps of 3 environments; it must return floats \[2, 3, F\]",
        ),
        ("whole", r"returned int32\[2, 3, 8\] for 2 steps"),  # has no gradient
        ("several", "returned tuple for 2 steps"),
        ("fixed", r"returned float32\[1, 1, 8\] for 2 steps"),
        ("choosing", "uses the value of an array in Python .* \\(test_network.py, line"),
        ("centred", "features of an observation that depend on the others in its batch"),
        ("dropping", "InvalidRngError"),  # `init` would take another key for it
    ],
)
def test_own_encoder_is_traced_for_several_steps_and_environments(name, message):
    build(encoder="tests.networks.test_network:sound", core="none")
    with pytest.raises(ConfigError, match=f"test_network:{name}.*{message}") as caught:
        build(encoder=f"tests.networks.test_network:{name}", core="none")
    assert "\n" not in str(caught.value)
