"""A value function that sees the state of the whole, and a policy that does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl import algorithms
from jaxrl.config import ConfigError, from_json, resolve, to_json
from jaxrl.envs import registry
from jaxrl.envs.agents import AgentRows
from jaxrl.envs.base import Box
from jaxrl.envs.checks import check_types
from jaxrl.envs.native.probe_agents import ProbeAgents
from jaxrl.programs.device_runtime import environment
from tests.experience.agents.hidden_prizes import LEAVES, HiddenPrizes
from tests.experience.agents.shared_policy import config, first_state, iteration
from tests.inference.runs import save_run

GAMMA = 0.9


def learnt_values(**fields: Any) -> dict[tuple[int, ...], np.ndarray]:
    """float32[2], the values of the agents after learning, by (time, x, y)."""
    program = iteration(
        **{
            "env.name": "tests.experience.agents.hidden_prizes:HiddenPrizes",
            "env.num_envs": 64,
            "network.core": "none",
            "network.hidden_sizes": (32,),
            "ppo.num_minibatches": 4,
            "ppo.num_epochs": 4,
            "ppo.learning_rate": 5e-3,
            "ppo.gamma": GAMMA,
            "stop.steps": 60 * 64 * 12,
            **fields,
        }
    )
    learn = jax.jit(lambda s: jax.lax.scan(lambda s, _: (program.iterate(s)[0], None), s, length=60)[0])
    policy = learn(first_state(program, seed=1)).learner.policy
    env, agent = HiddenPrizes(), program.collector.agent
    states = [(t, x, y) for t in range(3) for x in (-1, 1) for y in (-1, 1)]
    central = [env.central((jnp.int32(t), jnp.array([x, y], jnp.float32))) for t, x, y in states]
    own = jnp.tile(jnp.eye(2), (len(states), 1))
    obs = {"central": jnp.repeat(jnp.stack(central), 2, axis=0), "own": own}
    given = obs if program.learning.config.network.central_value else own
    out = agent.forward(policy, given, agent.initial_carry(len(own)), jnp.ones(len(own), bool), None)
    return dict(zip(states, np.asarray(out.value).reshape(-1, 2), strict=True))


@pytest.mark.slow
def test_values_that_no_agent_can_know_are_learnt_from_the_state_of_the_whole() -> None:
    known = lambda n: (1 - GAMMA**n) / (1 - GAMMA)  # noqa: E731
    for (t, x, y), value in learnt_values(**{"network.central_value": True}).items():
        for a, sign in enumerate((x, x * y)):
            if t < LEAVES[a]:
                assert abs(value[a] - sign * known(LEAVES[a] - t)) < 0.15, (t, x, y, a)


# It shows that the environment does not tell, which changes with hidden_prizes.py alone.
@pytest.mark.long
def test_no_agent_can_know_them() -> None:
    for (t, *_), value in learnt_values().items():
        assert all(abs(value[a]) < 0.5 for a in range(2) if t < LEAVES[a])


def agent_and_inputs(**fields: Any) -> tuple[Any, Any, Any]:
    """An agent with statistics, its `Acting`, and [5, 6] observations without order."""
    resolved = resolve(config(**{"network.central_value": True, **fields}), 1)
    _, spec = environment(resolved)
    agent = algorithms.build_agent(resolved, dataclasses.replace(spec, has_action_mask=False))
    acting = jax.jit(agent.init)(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), 2))
    obs = jax.tree.map(
        lambda x: jax.random.normal(next(keys), (5, 6, *x.shape)), jax.eval_shape(lambda: _example(agent))
    )
    return agent, acting, obs


def _example(agent: Any) -> Any:
    return {key: jnp.zeros(part.shape) for key, part in agent.spec.observation_space.spaces}


class Pictures(ProbeAgents):
    """Observations are pictures: each part of what the value sees has an encoder of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = dataclasses.replace(self.spec, observation_space=Box.of(-1, 1, (5, 5, 2)))

    def _observe(self, state: Any) -> jax.Array:
        return jnp.zeros((4, 5, 5, 2))


@pytest.mark.slow
def test_each_dense_layer_of_the_encoders_is_normalised() -> None:
    pictures = "tests.experience.agents.test_central_value:Pictures"
    fields = {"network.core": "none", "network.encoder": "auto", "env.name": pictures}
    agent, _, _ = agent_and_inputs(**fields, **{"network.layer_norm": True})
    params = jax.eval_shape(agent.init_params, jax.random.key(0))
    layers = {name: [kind.partition("_")[0] for kind in params[name]] for name in params if "_" in name}
    assert len(layers) == 4
    for kinds in layers.values():
        assert kinds.count("LayerNorm") == kinds.count("Dense") + kinds.count("Conv")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"network.core": "lstm"},
        {
            "network.core": "none",
            "network.encoder": "auto",
            "env.name": "tests.experience.agents.test_central_value:Pictures",
        },
    ],
    ids=["vectors", "pictures"],
)
def test_the_policy_does_not_see_the_state_of_the_whole(fields: dict[str, Any]) -> None:
    agent, acting, obs = agent_and_inputs(**fields)
    carry, reset = agent.initial_carry(6), jnp.zeros((5, 6), bool).at[0].set(True)

    @jax.jit
    def outputs(params: Any, obs: Any) -> Any:
        return agent.apply(dataclasses.replace(acting, params=params), obs, carry, reset, None)

    other = obs | {"central": obs["central"] * 3 - 1}
    out, changed = outputs(acting.params, obs), outputs(acting.params, other)
    for x, y in zip(jax.tree.leaves(out.distribution), jax.tree.leaves(changed.distribution), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(out.features, changed.features)
    assert (out.value != changed.value).all()

    def policy(params: Any, obs: Any) -> Any:
        found = outputs(params, obs)
        log_prob = found.distribution.log_prob(jnp.ones((5, 6), jnp.int32))
        return (jnp.exp(log_prob) * found.value.shape[0] + found.distribution.entropy()).sum()

    value = lambda params, obs: jnp.square(outputs(params, obs).value - 1).sum()  # noqa: E731
    of_policy, of_obs = jax.jit(jax.grad(policy, (0, 1)))(acting.params, obs)
    of_value, value_obs = jax.jit(jax.grad(value, (0, 1)))(acting.params, obs)
    assert not of_obs["central"].any()
    assert all(x.any() for x in (of_obs["own"], value_obs["central"], value_obs["own"]))
    # No parameter has a part in both.
    has = lambda grads: {name: any(x.any() for x in jax.tree.leaves(grads[name])) for name in grads}  # noqa: E731
    assert all(has(of_policy)[name] != has(of_value)[name] for name in acting.params)
    assert has(of_policy)["head"]
    assert has(of_value)["value"]


@pytest.mark.slow
def test_rows_have_the_state_of_their_environment() -> None:
    whole, rows = (AgentRows(registry.make("jaxrl:ProbeAgents", w)) for w in (("central_observation",), ()))
    keys = jax.random.split(jax.random.key(3), 8)
    step = jax.jit(lambda rows, state, action: rows.step(keys, state, action), static_argnums=0)
    (state, obs), (plain, own) = jax.jit(lambda: (whole.reset(keys), rows.reset(keys)))()
    central_of = jax.jit(jax.vmap(ProbeAgents().central))
    ended = 0
    for t in range(9):
        central = np.asarray(central_of(state.env))
        np.testing.assert_array_equal(obs["own"], own)
        np.testing.assert_array_equal(obs["central"], central.repeat(4, axis=0))
        action = np.full(8, t % 2, np.int32)
        (state, found), (plain, expected) = step(whole, state, action), step(rows, plain, action)
        np.testing.assert_array_equal(found.final_obs["own"], expected.final_obs)
        # Before the reset that may have followed.
        final = np.asarray(found.final_obs["central"])
        np.testing.assert_array_equal(final[:, :5].argmax(axis=1), t % 4 + 1)
        for name in ("reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        obs, own, ended = found.obs, expected.obs, ended + int(np.asarray(found.team.done).sum())
    assert ended == 16


@pytest.mark.slow
def test_a_loaded_policy_acts_on_what_the_agent_sees_itself(tmp_path: Path) -> None:
    save_run(
        tmp_path, env__name="jaxrl:ProbeAgents", network__central_value=True, normalize__observations=True
    )
    policy = jaxrl.load(tmp_path)
    rng = np.random.default_rng(0)
    own, central = (rng.normal(size=(32, 9)).astype(np.float32) for _ in range(2))
    mask = np.ones((32, 3), bool)
    (action, carry), (other, _) = (
        policy.act(obs, action_mask=mask, sample=False) for obs in (own, {"own": own, "central": central})
    )
    np.testing.assert_array_equal(action, other)
    assert len({*action.tolist()}) > 1
    again, _ = policy.act(own, carry, action_mask=mask, sample=False)
    first, _ = policy.act(own[0], jax.tree.map(lambda x: x[0], carry), action_mask=mask[0], sample=False)
    assert first == again[0]
    with pytest.raises(ConfigError, match="`obs` must be a dict of central, own"):
        policy.judge(own, action_mask=mask)  # has the value, which needs both


class Short(ProbeAgents):
    """Returns less than it declares."""

    def central(self, state: Any) -> jax.Array:
        return super().central(state)[:3]


def test_what_is_refused() -> None:
    asks: dict[str, Any] = {"network.central_value": True}
    for fields, message in (
        (
            asks | {"env.name": "gymnax:CartPole-v1"},
            r"`network.central_value` \(=True\) needs a state of the whole environment, which gymnax:",
        ),
        (asks | {"env.name": "envpool:CartPole-v1"}, "needs a state of the whole environment, which envpool"),
        ({"env.wrappers": ("central_observation",)}, "which `network.central_value` adds itself"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            resolve(config(**fields), 1)
        assert "\n" not in str(caught.value)
    with pytest.raises(
        ValueError, match=r"central\(\) returned an observation of float32\[3\], its space has"
    ):
        check_types("short", Short())
    resolved = resolve(config(**asks, **{"env.wrappers": ("central_observation", "agent_id")}), 1)
    assert resolved.env.wrappers == ("agent_id", "central_observation")
    assert (
        from_json(to_json(resolved))
        == resolved
        == resolve(config(**asks, **{"env.wrappers": ("agent_id",)}), 1)
    )
