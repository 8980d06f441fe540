"""Encoders: one for each kind of observation, chosen by name or by the space."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Dict, Discrete, MultiDiscrete
from jaxrl.networks import ENCODERS
from jaxrl.networks.encoders import build_encoder
from jaxrl.networks.registry import Registry
from tests.compiled_programs import tiny_config

NETWORK = tiny_config().network
VECTOR = Box.of(-1, 1, (3,))
IMAGE = Box.of(0, 255, (10, 10, 2), np.uint8)


def encode(space, obs, encoder="auto", **fields):
    """(features, number of parameters)."""
    network = dataclasses.replace(NETWORK, encoder=encoder, **fields)
    module = build_encoder(network, space)
    features, params = jax.jit(module.init_with_output)(jax.random.key(0), obs)
    return np.asarray(features), sum(x.size for x in jax.tree.leaves(params))


def encoder_of(space, obs):
    """(the encoder as a program, its parameters)."""
    module = build_encoder(NETWORK, space)
    return jax.jit(module.apply), jax.jit(module.init)(jax.random.key(0), obs)


@pytest.mark.parametrize(
    ("encoder", "shape", "axes"),
    [
        ("minatar", (10, 12, 4), (2, 0, 1)),  # channels first
        pytest.param("nature", (40, 36, 4), (2, 0, 1), marks=pytest.mark.slow),
        pytest.param("impala", (10, 12, 4), (2, 0, 1), marks=pytest.mark.slow),
        # Frames first, their colours last, and then their colours.
        pytest.param("minatar", (10, 12, 2, 3), (2, 0, 1, 3), marks=pytest.mark.slow),
        pytest.param("minatar", (10, 12, 2, 3), (2, 3, 0, 1), marks=pytest.mark.slow),
    ],
)
def test_pictures_with_channels_or_frames_first_are_read_as_those_with_channels_last(encoder, shape, axes):
    # `shape` is height, width and what becomes channels.
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 256, (2, 3, *shape)).astype(np.uint8)
    first = obs.transpose(0, 1, *(2 + axis for axis in axes))
    last = obs.reshape(*obs.shape[:4], -1)
    spaces = [Box.of(0, 255, x.shape[2:], np.uint8) for x in (first, last)]
    network = dataclasses.replace(NETWORK, encoder=encoder)
    one, other = (build_encoder(network, space) for space in spaces)
    params = jax.jit(other.init)(jax.random.key(0), last)
    features = jax.jit(one.apply)(params, first)
    np.testing.assert_allclose(features, jax.jit(other.apply)(params, last), rtol=1e-5, atol=1e-6)


def test_discrete_observations_are_one_hot():
    features, _ = encode(Discrete(4), jnp.array([[2, 0]]), "identity")
    np.testing.assert_array_equal(features, [[[0, 0, 1, 0], [1, 0, 0, 0]]])


def test_multi_discrete_observations_are_one_hot_one_after_the_other():
    features, _ = encode(MultiDiscrete((2, 3)), jnp.array([[1, 0], [0, 2]]), "identity")
    np.testing.assert_array_equal(features, [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]])


def test_bytes_are_scaled_and_other_dtypes_only_converted():
    space = Box.of(0, 255, (2, 1), np.uint8)
    features, _ = encode(space, jnp.array([[[0], [255]]], jnp.uint8), "identity")
    np.testing.assert_array_equal(features, [[0.0, 1.0]])
    features, _ = encode(Box.of(0, 255, (2, 1), np.int32), jnp.array([[[0], [255]]]), "identity")
    np.testing.assert_array_equal(features, [[0.0, 255.0]])
    features, _ = encode(Box.of(0, 1, (2,), bool), jnp.array([[True, False]]), "identity")
    np.testing.assert_array_equal(features, [[1.0, 0.0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "bound"),
    [
        *(("identity", 1), ("mlp", 255), ("minatar", 14), ("nature", 254), ("nature", 255)),
        pytest.param("impala", 1, marks=pytest.mark.long),
    ],
)
def test_the_bound_of_the_space_scales_bytes(encoder, bound) -> None:
    """A network sees the same in bytes up to any bound as in numbers from 0 to 1."""
    shape = (36, 36, 2)
    codes = np.random.default_rng(0).integers(0, bound + 1, (3, *shape)).astype(np.uint8)
    features, _ = encode(Box.of(0, bound, shape, np.uint8), jnp.asarray(codes), encoder)
    scaled = jnp.asarray(codes, jnp.float32) / bound
    expected, _ = encode(Box.of(0, 1, shape), scaled, encoder)
    np.testing.assert_array_equal(features, expected)


def test_bytes_without_a_bound_are_pictures() -> None:
    space = Box.of(-np.inf, np.inf, (2,), np.uint8)
    features, _ = encode(space, jnp.array([[0, 255]], jnp.uint8), "identity")
    np.testing.assert_array_equal(features, [[0.0, 1.0]])


@pytest.mark.parametrize(
    ("space", "encoder", "num_params"),
    [
        (VECTOR, "mlp", 3 * 8 + 8),
        (IMAGE, "mlp", 200 * 8 + 8),
        # One 3x3 convolution to 16 channels, of 10x10 without padding: 8x8.
        (IMAGE, "minatar", 9 * 2 * 16 + 16 + 8 * 8 * 16 * 8 + 8),
    ],
)
def test_number_of_parameters(space, encoder, num_params):
    obs = jnp.zeros((2, 3, *space.shape), space.dtype)
    features, found = encode(space, obs, encoder)
    assert features.shape == (2, 3, 8)
    assert found == num_params


@pytest.mark.parametrize(
    ("encoder", "size", "num_params"),
    [
        # Mnih et al. 2015: 84 -> 20 -> 9 -> 7 pixels.
        ("nature", 84, (64 * 4 + 1) * 32 + (16 * 32 + 1) * 64 + (9 * 64 + 1) * 64 + (49 * 64 + 1) * 8),
        # Espeholt et al. 2018: three stages that halve 16 -> 8 -> 4 -> 2, five convolutions each.
        (
            "impala",
            16,
            (9 * 4 + 1) * 16
            + 4 * (9 * 16 + 1) * 16
            + (9 * 16 + 1) * 32
            + 4 * (9 * 32 + 1) * 32
            + 5 * (9 * 32 + 1) * 32
            + (4 * 32 + 1) * 8,
        ),
    ],
)
def test_image_networks_are_those_of_the_papers(encoder, size, num_params):
    module = build_encoder(
        dataclasses.replace(NETWORK, encoder=encoder), Box.of(0, 255, (size, size, 4), np.uint8)
    )
    obs = jax.ShapeDtypeStruct((2, size, size, 4), jnp.uint8)
    features, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), obs)
    assert features.shape == (2, 8)
    assert sum(x.size for x in jax.tree.leaves(variables)) == num_params


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (VECTOR, "MLP"),
        (Discrete(4), "MLP"),
        (IMAGE, "ConvEncoder"),
        (Box.of(0, 255, (36, 36, 1), np.uint8), "ConvEncoder"),
    ],
)
def test_auto_chooses_by_the_space(space, name):
    module = build_encoder(NETWORK, space)
    assert type(module).__name__ == name
    if name == "ConvEncoder":
        assert len(module.layers) == (3 if space.shape[0] >= 36 else 1)


def test_image_encoders_refuse_vectors():
    for name in ("minatar", "nature", "impala"):
        with pytest.raises(ConfigError, match=rf"`network.encoder` \(='{name}'\) needs .*height, width"):
            build_encoder(dataclasses.replace(NETWORK, encoder=name), VECTOR)


def test_nature_refuses_images_that_its_strides_use_up():
    with pytest.raises(ConfigError, match="needs at least 36 pixels a side"):
        build_encoder(dataclasses.replace(NETWORK, encoder="nature"), IMAGE)


DICT = Dict((("image", IMAGE), ("vector", VECTOR)))


def test_dict_features_are_concatenated_in_the_order_of_the_keys():
    obs = {"vector": jnp.full((2, 3), 0.5), "image": jnp.full((2, 10, 10, 2), 255, jnp.uint8)}
    features, _ = encode(DICT, obs, "identity")
    np.testing.assert_array_equal(features, [[1.0] * 200 + [0.5] * 3] * 2)
    features, _ = encode(DICT, obs, "vector=identity,image=minatar")
    assert features.shape == (2, 8 + 3)
    np.testing.assert_array_equal(features[:, 8:], 0.5)


def test_every_key_of_a_dict_matters():
    obs = {"vector": np.full((1, 3), 0.5, np.float32), "image": np.full((1, 10, 10, 2), 255, np.uint8)}
    apply, params = encoder_of(DICT, obs)
    before = np.asarray(apply(params, obs))
    for key in obs:
        assert (np.asarray(apply(params, obs | {key: np.zeros_like(obs[key])})) != before).any()


@pytest.mark.slow
def test_joint_is_an_mlp_over_all_parts():
    obs = {"vector": jnp.full((2, 3), 0.5), "image": jnp.full((2, 10, 10, 2), 255, jnp.uint8)}
    features, num_params = encode(DICT, obs, "joint")
    together = jnp.concatenate([jnp.ones((2, 200)), obs["vector"]], axis=-1)
    expected, expected_params = encode(Box.of(0.0, 1.0, (203,)), together, "mlp")
    assert features.shape == expected.shape
    assert num_params == expected_params
    with pytest.raises(ConfigError, match="'joint'. takes a dict of arrays, not Box: use 'mlp'"):
        encode(VECTOR, jnp.ones((2, 3)), "joint")


@pytest.mark.parametrize("names", ["image=minatar", "image=minatar,vector=mlp,sound=mlp"])
def test_names_by_key_must_cover_the_keys(names):
    with pytest.raises(ConfigError, match="must name each observation key: image, vector"):
        build_encoder(dataclasses.replace(NETWORK, encoder=names), DICT)


def test_features_have_the_compute_dtype_and_parameters_float32():
    # correctness 22.
    network = dataclasses.replace(NETWORK, encoder="minatar", compute_dtype="bfloat16")
    module = build_encoder(network, IMAGE)
    obs = jax.ShapeDtypeStruct((2, 10, 10, 2), jnp.uint8)
    features, variables = jax.eval_shape(module.init_with_output, jax.random.key(0), obs)
    assert features.dtype == jnp.bfloat16
    assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype(jnp.float32)}


class Doubled(nn.Module):
    @nn.compact
    def __call__(self, obs):
        return 2.0 * obs


def doubled(network, space):
    """A user's own encoder, as `module:attribute`."""
    assert space is VECTOR
    return Doubled()


def test_a_users_own_encoder():
    features, _ = encode(VECTOR, jnp.ones((2, 3)), f"{__name__}:doubled")
    np.testing.assert_array_equal(features, 2.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("natur", r"`network.encoder` \(='natur'\) is no registered name.*; did you mean `nature`\?"),
        ("no_such_module:encoder", r"`network.encoder` \(='no_such_module:encoder'\) cannot be imported"),
        ("jaxrl.networks:no_such", r"cannot be imported: .*no_such"),
    ],
)
def test_unknown_encoder(name, message):
    with pytest.raises(ConfigError, match=message):
        encode(VECTOR, jnp.ones(3), name)


def test_a_name_is_registered_once():
    registry = Registry("network.encoder", ("network", "space"), nn.Module)
    registry.register("mine")(doubled)
    with pytest.raises(ValueError, match="'mine' is registered already"):
        registry.register("mine")(doubled)
    assert registry.get("mine") is doubled
    assert "mine" not in ENCODERS.names()
