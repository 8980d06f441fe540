"""Evaluation is fair: whole episodes, a fixed number of each environment, nothing carried over or learned."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algorithms.actor_critic import ActorCritic
from jaxrl.config import NormalizeConfig, resolve
from jaxrl.envs import registry
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.vector import VectorEnv
from jaxrl.evaluation import evaluator as evaluation
from jaxrl.evaluation.evaluator import DeviceEvaluator
from jaxrl.evaluation.result import Result
from jaxrl.experience import episodes
from jaxrl.experience.host.threads import Cancelled
from jaxrl.networks import Network, NetworkOutput, normalizer
from jaxrl.networks.distributions import Categorical
from jaxrl.parallel import process_exit
from jaxrl.parallel.sharding import Topology
from jaxrl.types import Acting, Array, PyTree

CONFIG = resolve(jaxrl.default_config(), 1)


def evaluate(
    name: str, count: int, act: Callable[[Array, Array], Array] | None = None, **options: Any
) -> Result:
    """Plays `count` episodes of a user's environment with a scripted policy."""
    env = registry.make(f"tests.e2e.environments:{name}")
    stats = options.pop("obs_stats", None)
    normalize = dataclasses.replace(CONFIG.normalize, observations=stats is not None)
    agent = scripted(env, act or (lambda obs, steps: steps), normalize)
    player = DeviceEvaluator(agent, VectorEnv(env), Topology.of(1))
    state, key = Acting((), stats), jax.random.key(options.pop("seed", 0))
    mode = "sampled" if options.pop("sample", False) else "greedy"
    return Result.of(player.play(state, key, count, (mode,), **options)[mode], mode)


def scripted(
    env: JaxEnv, act: Callable[[Array, Array], Array], normalize: NormalizeConfig = CONFIG.normalize
) -> ActorCritic:
    """An agent whose memory counts the steps since the last reset, and that takes `act(obs, count)`."""
    agent = ActorCritic.build(CONFIG.network, env.spec, normalize)
    actions = env.spec.action_space.n  # type: ignore[union-attr]

    class Counting(Network):
        def init(self, key: Array) -> PyTree:
            return ()

        def initial_carry(self, n: int) -> Array:
            return jnp.full(n, 7)

        def apply(
            self, params: PyTree, obs: PyTree, carry: PyTree, reset: Array, action_mask: Array | None
        ) -> NetworkOutput:
            count = jnp.where(reset[0], 0, carry)
            action = jnp.clip(act(obs[0, :, 0], count), 0, actions - 1)
            # Likely, not certain: a sampled action is another one quite often.
            logits = 2.0 * jax.nn.one_hot(action, actions)[None]
            heads = {"head": Categorical(logits), "value": jnp.zeros(reset.shape)}
            features = {"policy": jnp.zeros((*reset.shape, 1))}
            return NetworkOutput(heads=heads, features=features, carry=count + 1)

    fields = {field.name: getattr(agent.network, field.name) for field in dataclasses.fields(Network)}
    return dataclasses.replace(agent, network=Counting(**fields))


@pytest.mark.parametrize("count", [5, *(pytest.param(x, marks=pytest.mark.slow) for x in (3, 4, 11))])
def test_exactly_as_many_episodes_as_asked(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    # Below, at and above the number of environments. (Several devices: see tests/multi_device.)
    monkeypatch.setattr(evaluation, "MAX_ENVIRONMENTS", 4)
    result = evaluate("Echo(limit=3)", count)
    assert (result.episodes, result.unfinished) == (count, 0)
    # Each of them is whole: its length, and the memory of its own three steps, 0 + 1 + 2.
    assert (result.mean_length, result.std_length) == (3, 0)
    # correctness 5 and 21: the carry is fresh in every episode, the second of an environment too.
    assert (result.minimum, result.maximum) == (3, 3)


@pytest.mark.parametrize("environments", [200, pytest.param(20, marks=pytest.mark.slow)])
def test_short_episodes_are_not_favoured(monkeypatch: pytest.MonkeyPatch, environments: int) -> None:
    # correctness 21: the first 200 episodes to finish would nearly all be the short ones, with return 0.
    monkeypatch.setattr(evaluation, "MAX_ENVIRONMENTS", environments)
    result = evaluate("ShortOrLong(long=40)", 200)
    assert result.episodes == 200
    standard_error = 20 / np.sqrt(200)
    assert abs(result.mean - 20) < 3 * standard_error
    assert (result.minimum, result.maximum) == (0, 40)


def test_normaliser_is_applied_and_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    # correctness 13: the observation 5 has the score (5 - 1) / 2 = 2; statistics that still learned
    # from the episodes' constant 5 would move it.
    monkeypatch.setattr(evaluation, "MAX_ENVIRONMENTS", 2)
    samples = jnp.array([[[-1.0]], [[3.0]]])  # [T, B, 1]
    stats = normalizer.update(normalizer.init(jnp.zeros(1)), samples, None, lambda tree: tree)
    result = evaluate("Echo(limit=3)", 6, lambda obs, _: jnp.round(4 * obs).astype(int), obs_stats=stats)
    assert (result.minimum, result.maximum) == (3 * 8, 3 * 8)


@pytest.mark.slow
def test_greedy_is_deterministic_and_sampling_is_not() -> None:
    greedy = [evaluate("Echo(limit=3)", 16, seed=seed) for seed in (0, 1)]
    assert [(r.mean, r.std) for r in greedy] == [(3, 0), (3, 0)]
    sampled = [evaluate("Echo(limit=3)", 16, sample=True, seed=seed) for seed in (0, 0, 1)]
    assert sampled[0].std > 0
    assert sampled[0] == sampled[1]
    assert sampled[0].mean != sampled[2].mean


@pytest.mark.parametrize("environments", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_episodes_without_end_are_cut_off_and_counted(
    monkeypatch: pytest.MonkeyPatch, environments: int
) -> None:
    monkeypatch.setattr(evaluation, "MAX_ENVIRONMENTS", environments)
    monkeypatch.setattr(episodes, "DEFAULT_MAX_EPISODE_STEPS", 7)
    result = evaluate("Echo(length=0)", 3)
    assert (result.episodes, result.unfinished) == (3, 3)
    assert (result.mean_length, result.std_length) == (7, 0)


@pytest.mark.slow
def test_a_long_evaluation_is_given_up_in_the_middle() -> None:
    env = registry.make("tests.e2e.environments:Echo(length=0, limit=10_000)")
    given_up = iter([False, False, True])
    player = DeviceEvaluator(
        scripted(env, lambda obs, steps: steps),
        VectorEnv(env),
        Topology.of(1),
        given_up=lambda: next(given_up),
    )
    state, key = Acting((), None), jax.random.key(0)
    player.compile(state, 1024)
    with pytest.raises(Cancelled):
        player.play(state, key, 1024)
    assert process_exit.must_leave()  # the devices go on, so that only that ends the process at once
    deadline = time.monotonic() + 60
    while process_exit.must_leave() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not process_exit.must_leave()


@pytest.mark.slow
def test_training_state_is_untouched() -> None:
    config = jaxrl.default_config()
    config.env.update(name="tests.e2e.environments:ShortOrLong", num_envs=4)
    config.network.update(hidden_sizes=(4,), core_size=4)
    config.normalize.observations = True
    config.ppo.update(rollout_length=4, num_minibatches=1)
    trainer = jaxrl.Trainer(config)
    before = jax.tree.map(
        lambda x: np.array(x),
        (
            trainer.state.collector.carry,
            trainer.state.collector.env_state,
            trainer.state.learner.policy.obs_stats,
        ),
    )
    trainer.evaluate(5)
    after = (
        trainer.state.collector.carry,
        trainer.state.collector.env_state,
        trainer.state.learner.policy.obs_stats,
    )
    jax.tree.map(np.testing.assert_array_equal, before, after)
