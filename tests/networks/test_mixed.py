"""Actions of several parts: their distribution, and training on them on the device and on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from jaxrl import envs
from jaxrl.config import resolve
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, JaxEnv, Mixed, MultiDiscrete, TimeStep
from jaxrl.envs.checks import check_types
from jaxrl.envs.registry import make_host
from jaxrl.inference.loaded_policy import LoadedPolicy
from jaxrl.networks import distributions, gaussians
from jaxrl.reporting.writers import MultiWriter
from jaxrl.training.trainer import Trainer
from tests.inference.runs import policy_of
from tests.programs.test_make_train import tiny_config

SPACE = Mixed(
    (
        ("choice", Discrete(3)),
        ("pair", MultiDiscrete((2, 4))),
        ("push", Box.of([-1.0, 0.0], [1.0, 2.0], (2,))),
    )
)
ENV = "gymnasium:tests.networks.test_mixed:Told"


class Told(gymnasium.Env[np.ndarray, Any]):
    """Reward 1 if the action arrives as its space declares it, in every part."""

    metadata: ClassVar[dict[str, Any]] = {"reports": {}}
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Tuple(
        (
            gymnasium.spaces.Discrete(3, start=5),
            gymnasium.spaces.Dict(
                {
                    "push": gymnasium.spaces.Box(-1.0, 1.0, (2, 1)),
                    "pair": gymnasium.spaces.MultiDiscrete([2, 3]),
                }
            ),
        )
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), float(self.action_space.contains(action)), True, False, {}


def distribution(batch: int = 7) -> distributions.ProductDistribution:
    rng = np.random.default_rng(0)
    normal = lambda size: rng.normal(size=(batch, size)).astype(np.float32)  # noqa: E731
    return distributions.ProductDistribution(
        (
            distributions.Categorical(normal(3)),
            distributions.MultiCategorical(normal(6), nvec=(2, 4)),
            gaussians.Gaussian(normal(2), np.full((batch, 2), -0.5, np.float32)),
        ),
        SPACE,
    )


def test_parts_are_those_that_were_joined() -> None:
    action = np.array([2, 1, 3, 0.25, -0.5], np.float32)
    assert (SPACE.shape, SPACE.sizes) == ((5,), (1, 2, 2))
    parts = SPACE.parts(action)
    assert {name: x.tolist() for name, x in parts.items()} == {
        "choice": 2,
        "pair": [1, 3],
        "push": [0.25, -0.5],
    }
    assert [x.dtype for x in parts.values()] == [np.int32, np.int32, np.float32]


def test_log_probability_and_entropy_are_sums_over_parts() -> None:
    @jax.jit
    def compute(d: distributions.ProductDistribution, noise: Any) -> tuple[Any, Any]:
        choice, pair, push = d.parts
        action = d.sample(noise)
        parts = SPACE.parts(action)
        expected = (
            choice.log_prob(parts["choice"]) + pair.log_prob(parts["pair"]) + push.log_prob(parts["push"]),
            choice.entropy() + pair.entropy() + push.entropy(),
            choice.mode(),
        )
        return (d.log_prob(action), d.entropy(), SPACE.parts(d.mode())["choice"]), expected

    noise = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    found, expected = compute(distribution(), noise)
    for one, sums in zip(found[:2], expected[:2], strict=True):
        np.testing.assert_allclose(one, sums, rtol=1e-6)
    np.testing.assert_array_equal(found[2], expected[2])


def test_samples_follow_the_parts() -> None:
    count = 20_000
    d = jax.tree.map(lambda x: np.broadcast_to(x[:1], (count, *x.shape[1:])), distribution())
    noise = np.random.default_rng(2).normal(size=(count, 5)).astype(np.float32)
    noise[0], noise[1] = 9.0, -9.0  # the ends of what a normal number may be
    found = SPACE.parts(np.asarray(jax.jit(lambda d, noise: d.sample(noise))(d, noise)))
    expected = scipy.special.softmax(d.parts[0].logits[0])
    np.testing.assert_allclose(np.bincount(found["choice"], minlength=3) / count, expected, atol=0.015)
    second = scipy.special.softmax(d.parts[1].logits[0, 2:])
    np.testing.assert_allclose(np.bincount(found["pair"][:, 1], minlength=4) / count, second, atol=0.015)
    np.testing.assert_allclose(found["push"][2:].mean(0), d.parts[2].mean[0], atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jaxrl:ProbeMixed", pytest.param(ENV, marks=pytest.mark.long)])
def test_trains_and_acts_in_parts(name: str, tmp_path: Path) -> None:
    config = tiny_config(**{"env.name": name, "env.num_envs": 4, "network.core": "none"})
    trainer = Trainer(resolve(config, 1), writer=MultiWriter([]))
    summary = trainer.fit()
    trainer.close()
    if name == ENV:
        assert summary["eval_return"] == 1.0
    else:
        assert 0.0 < summary["eval_return"] <= 1.0


@pytest.mark.slow
def test_loaded_policy_names_the_parts() -> None:
    policy = LoadedPolicy(policy_of(env__name="jaxrl:ProbeMixed", network__encoder="identity"))
    action, _ = policy.act(np.array([0, 1, 0], np.float32))
    assert {name: x.shape for name, x in action.items()} == {"choice": (), "pair": (2,), "push": (2,)}
    actions, _ = policy.act(np.eye(3, dtype=np.float32), sample=True)
    assert {name: x.shape for name, x in actions.items()} == {"choice": (3,), "pair": (3, 2), "push": (3, 2)}


def test_what_cannot_be_a_part_is_one_line() -> None:
    with pytest.raises(ValueError, match="'x' .* parts may be Discrete, MultiDiscrete, or a Box of floats"):
        Mixed((("x", Box.of(0, 9, (2,), np.int32)),))

    class Masked(JaxEnv):
        spec = EnvSpec("Masked", Box.of(0.0, 1.0, (1,)), Dict((("a", Discrete(2)),)), has_action_mask=True)

        def reset(self, key: Any) -> tuple[Any, Any]:
            return jnp.zeros(1), jnp.zeros(1)

        def step(self, key: Any, state: Any, action: Any) -> tuple[Any, TimeStep]:
            return state, TimeStep(state, jnp.float32(action["a"]), jnp.bool(False), jnp.bool(True))

    with pytest.raises(ValueError, match="only Discrete and MultiDiscrete actions can have a mask"):
        check_types("Masked", Masked())


def test_wrappers_see_one_vector() -> None:
    env = envs.make("jaxrl:ProbeMixed", ("sticky_actions(probability=1.0)", "previous_action"))
    state, obs = jax.jit(env.reset)(jax.random.key(0))
    assert obs.shape == (3 + 3 + 5 + 2 + 1,)
    action = jnp.array([2, 1, 2, 0.5, -0.5], jnp.float32)
    _, step = jax.jit(env.step)(jax.random.key(1), state, action)
    np.testing.assert_array_equal(step.obs[3:-1], [0, 0, 1, 0, 1, 0, 0, 1, 0.5, -0.5])


@pytest.mark.slow
def test_host_space_names_its_parts() -> None:
    space = make_host(ENV).spec.action_space
    assert isinstance(space, Mixed)
    assert [name for name, _ in space.spaces] == ["0", "1.pair", "1.push"]
