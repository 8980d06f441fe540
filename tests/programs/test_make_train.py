"""Whole runs as one pure function: seeds and hyperparameters under vmap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import ConfigError


def tiny_config(**overrides: Any) -> ConfigDict:
    config = jaxrl.default_config()
    config.env.update(name="gymnax:CartPole-v1", num_envs=8, stagger=False)
    config.network.update(core="none", hidden_sizes=(4,), core_size=4)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=8, num_epochs=1, num_minibatches=2, learning_rate=1e-2)
    config.stop.steps = 3 * 8 * 8
    config.log.layers = False
    config.update_from_flattened_dict(overrides)
    return config


def assert_close(left: Any, right: Any) -> None:
    # Losses and KL are small sums of terms near 1, so their rounding does not shrink with them.
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), left, right)


def member(tree: Any, *index: int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


RATES = [1e-2, 0.0, 1e38]
OTHERS = {"gamma": 0.5, "entropy_coef": 0.5, "max_grad_norm": 1e-3, "target_kl": 1e-7}


def limited_config(**overrides: Any) -> ConfigDict:
    """With every kind of number, the one that may be missing as well."""
    return tiny_config(**{"ppo.target_kl": 0.5} | overrides)


@pytest.fixture(scope="module")
def train() -> Any:
    return jaxrl.make_train(limited_config())


@pytest.fixture(scope="module")
def single(train: Any) -> Any:
    return jax.jit(train)


@pytest.fixture(scope="module")
def population(train: Any) -> tuple[list[Any], Any, Any]:
    """`(numbers, states, metrics)` of two seeds times the rates, and times a change of each other number."""
    changes = [{"learning_rate": rate} for rate in RATES] + [{name: x} for name, x in OTHERS.items()]
    fields = [{f"ppo.{name}": value for name, value in each.items()} for each in changes]
    numbers = [jaxrl.hyperparameters(limited_config(**each)) for each in fields]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *numbers)
    over_numbers = jax.vmap(train, in_axes=(None, 0))
    keys = jax.random.split(jax.random.key(0), 2)
    return numbers, *jax.jit(jax.vmap(over_numbers, in_axes=(0, None)))(keys, stacked)


@pytest.mark.slow
def test_members_of_a_population_are_single_runs(population: Any, single: Any) -> None:
    # correctness 25 and 31: seeds times learning rates, and a member that diverges touches no other. With a
    # core: tests/algorithms/test_members.py.
    numbers, states, metrics = population
    keys = jax.random.split(jax.random.key(0), 2)
    for i, j in ((0, 0), (1, 0), (0, 1)):
        state, found = single(keys[i], numbers[j])
        assert_close(
            (member(states.learner.policy.params, i, j), member(metrics, i, j)),
            (state.learner.policy.params, found),
        )
    losses = metrics["loss/value"]
    assert not np.allclose(losses[0, 0], losses[1, 0], rtol=1e-3)
    # The first rollout of a key is the same at any rate; its second one is not.
    assert not np.allclose(losses[0, 0], losses[0, 1], rtol=1e-3)
    assert not np.isfinite(losses[:, 2]).all(axis=-1).any()


@pytest.mark.slow
def test_every_hyperparameter_is_each_members_own(population: Any, single: Any) -> None:
    numbers, _, metrics = population
    key = jax.random.split(jax.random.key(0), 2)[0]
    own, base = member(metrics, 0), member(metrics, 0, 0)
    for i in (0, *range(len(RATES), len(numbers))):
        assert_close(member(own, i), single(key, numbers[i])[1])
        leaves = zip(jax.tree.leaves(own), jax.tree.leaves(base), strict=True)
        same = [np.allclose(x[i], y, rtol=1e-4, equal_nan=True) for x, y in leaves]
        assert all(same) == (i == 0)


def test_hyperparameters_have_one_shape() -> None:
    config = tiny_config()
    plain = jaxrl.hyperparameters(config)
    assert {x.shape for x in jax.tree.leaves(plain)} == {()}
    assert {x.dtype for x in jax.tree.leaves(plain)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose([plain.learning_rate, plain.gamma], [1e-2, 0.99], rtol=1e-6)
    grid = jaxrl.hyperparameters(config, learning_rate=np.array([[1e-3], [1e-2]]), gamma=[0.9, 0.95, 1])
    assert {x.shape for x in jax.tree.leaves(grid)} == {(2, 3)}
    np.testing.assert_allclose(grid.gamma[1], [0.9, 0.95, 1.0])
    np.testing.assert_allclose(grid.clip_range, np.full((2, 3), 0.2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lerning_rate": 1.0}, r"`ppo.lerning_rate` is no numeric hyperparameter; those are learning_rate"),
        ({"num_epochs": 1}, "`ppo.num_epochs` is no numeric hyperparameter"),
        ({"gamma": [0.9, 1.5]}, r"`ppo.gamma` \(=.*1.5.*\) must lie between 0 and 1"),
        ({"learning_rate": np.nan}, "`ppo.learning_rate` .* must be a finite number"),
        ({"target_kl": 0.1}, "`ppo.target_kl` must be set in the configuration"),
        ({"gamma": [0.9, 0.8], "clip_range": [0.1] * 3}, r"must have one shape, not gamma \(2,\), clip_"),
    ],
)
def test_wrong_hyperparameters(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        jaxrl.hyperparameters(tiny_config(), **values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["init_from", "resume_from"])
def test_what_it_would_not_read_is_refused(field: str) -> None:
    config = jaxrl.default_config()
    config[field] = "runs/other"
    with pytest.raises(ConfigError, match=rf"`{field}` .='runs/other'. must be empty: make_train reads no"):
        jaxrl.make_train(config)
