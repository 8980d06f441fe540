"""The network: which devices have its kernel, and what names and parts of a user's own it takes."""

import dataclasses

import flax.linen as nn
import jax
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
