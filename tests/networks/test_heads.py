"""Heads: what each action space gets, and what of an action reaches the environment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Mixed, MultiDiscrete
from jaxrl.networks.distributions import draw_noise
from jaxrl.networks.heads import QHead, build_head
from tests.compiled_methods import compiled_method
from tests.compiled_programs import tiny_config

NETWORK = tiny_config().network
ARM = Box.of((-2.0, 0.0), (2.0, 0.5), (2,))
FEATURES = jnp.asarray(np.random.default_rng(0).normal(size=(64, 8)), jnp.float32)


def head_of(space, mask=None, gain=1.0, **fields):
    """(head, its distribution over FEATURES); `gain` multiplies the weights."""
    head = build_head(dataclasses.replace(NETWORK, **fields), EnvSpec("test:Env", space, space))

    @jax.jit
    def act():
        params = jax.tree.map(
            lambda x: gain * x, jax.jit(head.module.init)(jax.random.key(0), FEATURES, mask)
        )
        return head.module.apply(params, FEATURES, mask)

    return head, act()


log_prob = compiled_method("log_prob")


def sampled(head, distribution):
    """One action per row of FEATURES."""
    noise = draw_noise(head.noise_kind, jax.random.key(1), (len(FEATURES), *head.noise_shape))
    return np.asarray(jax.jit(distribution.sample)(noise))


@pytest.mark.parametrize(
    ("space", "layer", "fields"),
    [
        (Discrete(3), "logits", {}),
        (MultiDiscrete((2, 3)), "logits", {}),
        (ARM, "mean", {}),
        (ARM, "mean", {"head": "tanh_gaussian"}),
        pytest.param(
            ARM, "mean", {"head": "gaussian_mixture", "mixture_components": 2}, marks=pytest.mark.slow
        ),
    ],
)
def test_the_last_layer_begins_with_the_gain_of_the_configuration(space, layer, fields):
    # All singular values of orthogonal weights are their gain.
    network = dataclasses.replace(NETWORK, policy_gain=0.5, **fields)
    module = build_head(network, EnvSpec("test:Env", space, space)).module
    weight = jax.jit(module.init)(jax.random.key(0), FEATURES, None)["params"][layer]["kernel"]
    np.testing.assert_allclose(np.linalg.svd(weight, compute_uv=False), 0.5, rtol=1e-5)


@pytest.mark.parametrize("head", ["gaussian", "tanh_gaussian"])
def test_actions_begin_with_the_deviation_of_the_configuration(head):
    network = dataclasses.replace(NETWORK, head=head, policy_std=0.25)
    module = build_head(network, EnvSpec("test:Env", ARM, ARM)).module
    distribution, _ = module.init_with_output(jax.random.key(0), FEATURES, None)
    np.testing.assert_allclose(np.exp(distribution.log_std), 0.25, rtol=1e-6)


def test_discrete():
    head, distribution = head_of(Discrete(3), gain=300.0)
    action = sampled(head, distribution)
    assert set(np.unique(action)) == {0, 1, 2}
    np.testing.assert_array_equal(head.to_env(action), action)


def test_multi_discrete_is_summed_over_its_components():
    # correctness 16.
    head, distribution = head_of(MultiDiscrete((2, 3)), gain=300.0)
    action = sampled(head, distribution)
    assert action.shape == (64, 2)
    logits = np.asarray(distribution.logits, np.float64)
    expected = 0.0
    for i, part in enumerate((logits[:, :2], logits[:, 2:])):
        log_probs = part - np.log(np.exp(part).sum(axis=1, keepdims=True))
        expected = expected + np.take_along_axis(log_probs, np.asarray(action)[:, i : i + 1], 1)[:, 0]
    np.testing.assert_allclose(log_prob(distribution, action), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (Discrete(3), [1, 0, 1]),
        pytest.param(MultiDiscrete((2, 3)), [0, 1, 1, 0, 1], marks=pytest.mark.slow),
    ],
)
def test_masked_actions_have_probability_zero(space, mask):
    # correctness 16.
    mask = np.broadcast_to(np.array(mask, bool), (64, len(mask)))
    head, distribution = head_of(space, mask, gain=300.0)
    action = sampled(head, distribution)
    if isinstance(space, Discrete):
        assert set(action) == {0, 2}
    else:
        assert set(action[:, 0]) == {1}
        assert set(action[:, 1]) == {0, 2}
    assert np.isfinite(log_prob(distribution, action)).all()
    assert np.isfinite(jax.jit(distribution.entropy)()).all()


def test_gaussian_actions_are_clipped_for_the_environment_only():
    # correctness 15: the stored action and its log-probability are the unclipped ones.
    head, distribution = head_of(ARM, gain=300.0)
    action = sampled(head, distribution)
    assert (np.abs(action) > 2).any()
    in_env = np.asarray(head.to_env(action))
    # Of the second component 0 is the middle of its bounds and 1 is half of their width.
    np.testing.assert_allclose(in_env, np.clip(action * [1, 0.25] + [0, 0.25], [-2, 0], [2, 0.5]), rtol=1e-6)
    assert (np.asarray(log_prob(distribution, action)) != log_prob(distribution, in_env)).any()
    np.testing.assert_array_equal(distribution.log_std, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "middle", "half_width"),
    [
        # A deviation of 1 suits these as they are.
        (-0.4, 0.4, 0, 1),
        (-1, 1, 0, 1),
        (-3, 3, 0, 1),
        (-np.inf, np.inf, 0, 1),
        (-1e10, 1e10, 0, 1),
        (-5, np.inf, 0, 1),
        (-np.inf, 2, 0, 1),
        # And these not.
        (0, 1000, 500, 500),
        (0, 1, 0.5, 0.5),
        (-0.1, 0.1, 0, 0.1),
        (-10, 10, 0, 10),
        (-1, 3, 1, 2),
        (0, np.inf, 1, 1),
        (7, 3e38, 8, 1),
        (-np.inf, -5, -6, 1),
        (7, 7, 7, 1),
    ],
)
def test_gaussian_actions_have_the_scale_of_the_bounds(low, high, middle, half_width):
    box = Box.of(low, high, (2,))
    head = build_head(NETWORK, EnvSpec("test:Env", box, box))
    own = np.array([[-0.25, 0.3], [-30.0, 30.0]], np.float32)
    in_env = np.asarray(head.to_env(own))
    np.testing.assert_allclose(in_env, np.clip(middle + half_width * np.float64(own), low, high), rtol=1e-6)
    np.testing.assert_allclose(head.unit, half_width, rtol=1e-6)
    hash(head)  # part of an algorithm, which may be a static argument of jit
    if low < high:
        np.testing.assert_allclose(head.from_env(in_env)[0], own[0], rtol=1e-5)
    if (middle, half_width) == (0, 1):  # the numbers of an action to the bit, by clipping alone
        np.testing.assert_array_equal(in_env, np.clip(own, *np.float32([low, high])))
        assert head.from_env(own) is own
        assert "mul" not in str(jax.make_jaxpr(head.to_env)(own))


@pytest.mark.parametrize("name", ["gaussian_mixture", "mixed"])
def test_other_heads_with_gaussians_have_that_scale_too(name):
    box = Box.of(0, 1000, (2,))
    space = Mixed((("choice", Discrete(3)), ("push", box))) if name == "mixed" else box
    head = build_head(dataclasses.replace(NETWORK, head=name), EnvSpec("test:Env", box, space))
    own = np.array([2.0, -0.5, 3.0], np.float32)[-space.shape[0] :]
    in_env = np.asarray(head.to_env(own))
    np.testing.assert_allclose(in_env, np.array([2.0, 250.0, 1000.0])[-space.shape[0] :])
    np.testing.assert_allclose(head.from_env(in_env), np.array([2.0, -0.5, 1.0])[-space.shape[0] :])
    np.testing.assert_array_equal(head.unit, np.array([1, 500, 500])[-space.shape[0] :])


def test_unbounded_actions_pass_as_they_are():
    head, _ = head_of(Box.of(-np.inf, np.inf, (1,)))
    np.testing.assert_array_equal(head.to_env(jnp.array([[1e6]])), [[1e6]])


def test_squashed_actions_stay_within_the_bounds():
    # correctness 15: stored before squashing, so that it needs no atanh of 1.
    head, distribution = head_of(ARM, gain=300.0, head="tanh_gaussian")
    action = sampled(head, distribution)
    assert (np.abs(action) > 2).any()
    in_env = np.asarray(jax.jit(head.to_env)(action))
    assert (in_env >= [-2, 0]).all()
    assert (in_env <= [2, 0.5]).all()
    np.testing.assert_allclose(in_env, np.tanh(action) * [2, 0.25] + [0, 0.25], atol=1e-6)
    # The density of tanh(u) at the very edge of its range, where 1 - tanh(u)^2 rounds to 0.
    assert np.isfinite(log_prob(distribution, np.full((64, 2), 20.0, np.float32))).all()


@pytest.mark.parametrize("bound", [np.inf, 1e10])  # with which dm_control says that there is none
def test_squashing_needs_bounds(bound):
    with pytest.raises(ConfigError, match="`network.head` .*test:Env"):
        head_of(Box.of(-bound, bound, (1,)), head="tanh_gaussian")


@pytest.mark.parametrize("space", [Box.of(-1, 1, (2, 2)), Dict((("a", Discrete(2)),))])
def test_other_action_spaces_are_refused(space):
    with pytest.raises(ConfigError, match=r"`env.name` \(='test:Env'\) has the action space"):
        head_of(space)


@pytest.mark.parametrize("space", [Discrete(3), ARM])
def test_gain_of_the_policy_is_small(space):
    # correctness 17: 0.01, so that the first actions are nearly uniform (or have mean 0) at every
    # observation.
    head = build_head(NETWORK, EnvSpec("test:Env", space, space))
    params = jax.jit(head.module.init)(jax.random.key(0), FEATURES, None)["params"]
    kernel = params["mean" if space is ARM else "logits"]["kernel"]
    np.testing.assert_allclose(np.linalg.svd(kernel, compute_uv=False), 0.01, rtol=1e-5)


@pytest.mark.parametrize("copies", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_dueling_head_is_the_value_and_what_an_action_has_over_the_mean(copies):
    """V + A - mean A (Wang et al. 2016, equation 9), by numpy from the two layers."""
    head = QHead(3, dueling=True, copies=copies)
    x = FEATURES[:4]
    q, variables = jax.jit(lambda: head.init_with_output(jax.random.key(0), x, None))()
    layers = {name: np.float64(x) @ np.float64(p["kernel"]) for name, p in variables["params"].items()}
    advantage = layers["advantage"].reshape(4, copies, 3)
    expected = layers["value"][..., None] + advantage - advantage.sum(axis=-1, keepdims=True) / 3
    np.testing.assert_allclose(q, expected if copies > 1 else expected[:, 0], atol=1e-5)


@pytest.mark.parametrize("name", ["auto", "gaussian", "tanh_gaussian", "gaussian_mixture"])
def test_a_box_of_integers_is_refused(name):
    """Floats between them would reach a device environment, and be cut off towards 0 for one on the host."""
    with pytest.raises(ConfigError, match="one-dimensional Box of floats"):
        head_of(Box.of(0, 3, (2,), np.int32), head=name)
