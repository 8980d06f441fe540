"""Behavioural cloning: its gradient, carries, padding, statistics, early stop, and what it learns."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import algorithms
from jaxrl.algorithms.behavior_cloning.behavior_cloning import BehaviorCloning, EarlyStop
from jaxrl.algorithms.demonstrations import DemonstrationDraw, class_weights, hits, retrace
from jaxrl.config import Config, ConfigError, default_config, resolve
from jaxrl.envs import registry
from jaxrl.envs.base import Box, Discrete, Mixed
from jaxrl.experience.demonstrations import Episode, write_dataset
from jaxrl.metrics.reduction import row
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis
from tests.algorithms.tiny import assert_close, assert_equal

ENV = "tests.algorithms.environments:Chance"
LENGTHS = (11, 3, 7, 12, 5, 9, 4, 10, 6, 8)


def remembered(length: int, seed: int) -> Episode:
    """The right action is what the observation before said: only a policy with memory can be right."""
    obs = np.random.default_rng(seed).normal(3, 2, (length + 1, 3)).astype(np.float32)
    actions = np.concatenate([[0], obs[: length - 1].argmax(axis=1)]).astype(np.int32)
    ends = np.arange(length) == length - 1
    return Episode(
        observations=obs,
        actions=actions,
        rewards=np.zeros(length, np.float32),
        terminations=ends & (seed % 2 == 0),
        truncations=ends & (seed % 2 == 1),
    )


def written(folder: Path, lengths: tuple[int, ...]) -> str:
    episodes = [remembered(length, seed) for seed, length in enumerate(lengths)]
    write_dataset(folder, episodes, registry.spec_of(ENV), {"wrappers": []})
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("demonstrations") / "episodes", LENGTHS)


def cloning_config(data: str, core: str = "gru", **fields: Any) -> Config:
    config = default_config("behavior_cloning")
    config.env.update(name=ENV, num_envs=4, stagger=False)
    config.network.update(core=core, hidden_sizes=(8,), core_size=8)
    config.normalize.observations = True
    config.behavior_cloning.update(
        data=data, rollout_length=24, sequence_length=4, num_minibatches=1, max_grad_norm=1e6, patience=0
    )
    config.stop.steps = 100
    config.log.layers = False
    config.behavior_cloning.update(fields)
    return resolve(config, 1)


def build(config: Config) -> Iteration:
    agent = algorithms.build_agent(config, registry.spec_of(config.env.name))
    return Iteration.build(config, None, agent, Axis())


def parts(iteration: Iteration) -> tuple[BehaviorCloning, Any, DemonstrationDraw]:
    """(the algorithm, its first state, all demonstrations)."""
    algorithm = iteration.learning.algorithm
    assert isinstance(algorithm, BehaviorCloning)
    hyperparams = algorithm.hyperparameters(algorithm.config)
    state = jax.jit(iteration.init)(jax.random.key(1), hyperparams)
    return algorithm, state, iteration.learning.memory.draw(state.memory, None, jax.random.key(0))


def episodes_of(shown: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """(observations, actions) of each episode in the lanes, cut out again by their resets."""
    found = []
    for lane in range(shown.valid.shape[1]):
        valid, reset = (np.asarray(x[:, lane]) for x in (shown.valid, shown.reset))
        starts = [*np.flatnonzero(reset & valid), valid.sum()]
        for begin, end in itertools.pairwise(starts):
            here = slice(begin, end)
            found.append((np.asarray(shown.obs[here, lane]), np.asarray(shown.action[here, lane])))
    return found


def test_the_rate_of_the_next_update_follows_the_clock(data: str) -> None:
    """A quarter of a budget in seconds leaves three quarters of a linear rate, whatever the updates were."""
    config = cloning_config(data, schedule="linear", learning_rate=0.01)
    algorithm = algorithms.build(
        config, algorithms.build_agent(config, registry.spec_of(config.env.name)), Axis()
    )
    hyperparams = algorithm.hyperparameters(config)
    for elapsed, rate in ((None, 0.01), (0.25, 0.0075), (1.0, 0.0)):
        share = None if elapsed is None else jnp.float32(elapsed)
        learner: Any = SimpleNamespace(
            hyperparams=hyperparams, updates=jnp.int32(0), elapsed=share, planned=None
        )
        assert algorithm.scheduled_values(learner)["learning rate"] == pytest.approx(rate)


@pytest.mark.slow
def test_gradient_and_statistics_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    # Sequences as long as the lanes: gradients flow through whole episodes.
    few = written(tmp_path / "few", (3, 2, 5, 1, 4))
    config = cloning_config(few, rollout_length=8, sequence_length=8)
    algorithm, state, drawn = parts(build(config))
    learned = jax.jit(algorithm.learn)(state.learner, drawn, jax.random.key(2))
    episodes = episodes_of(drawn.training)
    assert len(episodes) == 4
    assert not drawn.training.valid.all()
    rows = np.concatenate([obs for obs, _ in episodes]).astype(np.float64)
    stats = learned.learner.policy.obs_stats
    assert float(stats.count) == len(rows)
    np.testing.assert_allclose(stats.mean[0], rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(stats.m2[0] / stats.count, rows.var(axis=0), rtol=1e-4)

    def loss(params: Any) -> Any:
        acting = dataclasses.replace(state.learner.policy, params=params, obs_stats=stats)
        total = jnp.float32(0)
        for obs, actions in episodes:
            carry = algorithm.agent.initial_carry(1)
            for t in range(len(actions)):
                out = algorithm.agent.forward(acting, obs[None, t], carry, jnp.array([t == 0]), None)
                total, carry = total - out.distribution.log_prob(actions[None, t])[0], out.carry
        return total / len(rows)

    cost, expected = jax.jit(jax.value_and_grad(loss))(state.learner.policy.params)
    # Adam's first moment after one update is a tenth of the gradient.
    flat, _ = jax.flatten_util.ravel_pytree(expected)
    moment = next(x.mu for x in learned.learner.opt_state if hasattr(x, "mu"))
    np.testing.assert_allclose(moment * 10, flat, atol=2e-6)
    np.testing.assert_allclose(learned.metrics["loss/policy"].value(), cost, rtol=1e-5)


@pytest.mark.slow
def test_sequences_begin_with_the_carry_that_acting_has(data: str) -> None:
    algorithm, state, drawn = parts(build(cloning_config(data)))
    shown, agent, acting = drawn.training, algorithm.agent, state.learner.policy
    found = jax.jit(lambda acting: retrace(agent, acting, shown, shown.action, 4))(acting)

    def step(carry: Any, xs: Any) -> Any:
        out = agent.forward(acting, xs[0], carry, xs[1], None)
        return out.carry, (carry, out.distribution.log_prob(xs[2]), agent.greedy(out))

    start = agent.initial_carry(4)
    _, (carry, log_prob, greedy) = jax.lax.scan(step, start, (shown.obs, shown.reset, shown.action))
    assert_close(found.carry, jax.tree.map(lambda x: x[::4], carry), atol=1e-6)
    assert_close(found.log_prob, log_prob, atol=1e-6)
    assert_equal(found.greedy, greedy)
    assert np.abs(jax.tree.leaves(found.carry)[0][1:]).max() > 0


@pytest.mark.slow
def test_padding_changes_nothing(data: str) -> None:
    algorithm, state, drawn = parts(build(cloning_config(data, num_minibatches=3, class_weights="balanced")))
    learn = jax.jit(algorithm.learn)
    other = {}
    for name in ("training", "validation"):
        shown = getattr(drawn, name)
        assert not shown.valid.all()
        obs = jnp.where(shown.valid[..., None], shown.obs, 7.0)
        other[name] = dataclasses.replace(shown, obs=obs, action=jnp.where(shown.valid, shown.action, 2))
    key = jax.random.key(2)
    found, expected = (learn(state.learner, x, key) for x in (DemonstrationDraw(**other), drawn))
    assert_close((found.learner, found.metrics), (expected.learner, expected.metrics), atol=1e-6)


@pytest.fixture(scope="module")
def learnt(data: str) -> tuple[Iteration, Any, dict[str, float]]:
    """(program, state, metrics of the last pass) after 60 passes of the default kind."""
    config = cloning_config(data, learning_rate=2e-2, num_minibatches=6, validation=0.3)
    iteration = build(config)
    _, state, _ = parts(iteration)
    many = jax.jit(lambda state: jax.lax.scan(lambda s, _: iteration.iterate(s), state, length=60))
    state, metrics = many(state)
    return iteration, state, row(jax.tree.map(lambda x: x[-1], metrics))


@pytest.mark.slow
def test_memory_is_learnt(learnt: Any) -> None:
    _, state, metrics = learnt
    assert metrics["behavior_cloning/accuracy"] > 0.97
    # On whole episodes that it has never learnt from; a third are right by chance.
    assert metrics["behavior_cloning/validation_accuracy"] > 0.6
    assert int(state.learner.updates) == 60 * 6


@pytest.mark.slow
def test_goes_on_bitwise_from_its_learner_and_the_files(learnt: Any) -> None:
    iteration, state, _ = learnt
    step = jax.jit(iteration.iterate)
    fresh = jax.jit(iteration.init)(
        jax.random.key(5), iteration.learning.algorithm.hyperparameters(iteration.learning.config)
    )
    assert not iteration.learning.memory.checkpointed
    restored = dataclasses.replace(state, memory=fresh.memory)
    assert_equal(step(restored)[0], step(state)[0])


@pytest.mark.slow
def test_without_memory_it_is_not(data: str) -> None:
    config = cloning_config(data, "none", learning_rate=2e-2, num_minibatches=12, sequence_length=1)
    iteration = build(config)
    _, state, _ = parts(iteration)
    many = jax.jit(lambda state: jax.lax.scan(lambda s, _: iteration.iterate(s), state, length=60))
    metrics = row(jax.tree.map(lambda x: x[-1], many(state)[1]))
    assert metrics["behavior_cloning/accuracy"] < 0.8


def test_early_stop_by_hand() -> None:
    best = {"w": jnp.float32(0)}
    state = EarlyStop(best, jnp.float32(jnp.inf), jnp.int32(0), jnp.array(False))
    told = []
    for number, loss in enumerate([1.0, 0.5, 0.6, 0.5, 0.4, 0.4, 0.41, 0.42, 0.1]):
        best, state = state.after(best, {"w": jnp.float32(number)}, jnp.float32(loss), patience=3)
        assert float(state.params["w"]) == number
        told.append((float(best["w"]), int(state.waited), bool(state.stopped)))
    assert [w for w, _, _ in told] == [0, 1, 1, 1, 4, 4, 4, 4, 4]
    assert [waited for _, waited, _ in told[:8]] == [0, 0, 1, 2, 0, 1, 2, 3]
    assert [stopped for _, _, stopped in told] == [False] * 7 + [True, True]
    assert float(state.loss) == np.float32(0.4)


def test_a_validation_that_is_no_number_is_never_the_best_of_several() -> None:
    best, told = {"w": jnp.float32(0)}, []
    state = EarlyStop(best, jnp.float32(jnp.inf), jnp.int32(0), jnp.array(False))
    for number, loss in enumerate([jnp.nan, jnp.nan, 0.5, jnp.nan, 0.4, jnp.nan, jnp.nan]):
        best, state = state.after(best, {"w": jnp.float32(number)}, jnp.float32(loss), patience=2)
        told.append((float(best["w"]), int(state.waited), bool(state.stopped)))
    # Without any number, as without episodes to validate with, learning goes on.
    assert [w for w, _, _ in told] == [0, 1, 2, 2, 4, 4, 4]
    assert [waited for _, waited, _ in told] == [0, 0, 0, 1, 0, 1, 2]
    assert [stopped for _, _, stopped in told] == [False] * 6 + [True]
    assert float(state.loss) == np.float32(0.4)


@pytest.mark.slow
def test_learning_ends_with_the_best_parameters(data: str) -> None:
    # A rate at which nothing is learnt that validates.
    config = cloning_config(data, learning_rate=0.5, num_minibatches=6, patience=2)
    iteration = build(config)
    _, state, _ = parts(iteration)
    many = jax.jit(lambda state: jax.lax.scan(lambda s, _: iteration.iterate(s), state, length=30))
    state, metrics = many(state)
    stopped = np.flatnonzero(metrics["behavior_cloning/stopped"].latest)
    assert len(stopped) > 0
    end = stopped[0]
    losses = metrics["behavior_cloning/validation_loss"].value()
    np.testing.assert_allclose(losses[end + 1 :], losses[: end + 1].min(), rtol=1e-5)
    assert int(state.learner.updates) == (end + 1) * 6


@pytest.mark.slow
def test_the_policy_is_the_best_whenever_a_run_ends(data: str) -> None:
    # A budget in seconds, a return or a signal may end it at any pass, before patience and steps are used up.
    iteration = build(cloning_config(data, learning_rate=0.5, num_minibatches=6, patience=30))
    _, state, _ = parts(iteration)

    def one(state: Any, _: None) -> Any:
        state, metrics = iteration.iterate(state)
        learner = state.learner
        return state, (learner.policy.params, learner.early_stop.params, metrics)

    _, (kept, learnt, metrics) = jax.jit(lambda state: jax.lax.scan(one, state, length=12))(state)
    losses = np.asarray(metrics["behavior_cloning/validation_loss"].value())
    assert (np.diff(losses) > 0).any(), "the best must not always be the last"
    for end in range(12):
        found, expected = (
            jax.tree.map(lambda x, i=i: x[i], params)
            for i, params in ((end, kept), (losses[: end + 1].argmin(), learnt))
        )
        assert_equal(found, expected)
    # Learning goes on from the latest: no two passes begin with the same parameters.
    assert len(np.unique(losses)) == 12


def test_a_wrong_category_is_one_away_whichever_it_is() -> None:
    """Of an action of several parts: the eighth of nine is no further from the first than the second."""
    space = Mixed((("which", Discrete(9)), ("how_much", Box.of(-2.0, 2.0, (2,)))))
    agent: Any = SimpleNamespace(spec=SimpleNamespace(action_space=space), to_env=lambda action: action)
    best = jnp.array([[0, 1, 1], [8, 1, 1], [1, 1, 1]], jnp.float32)
    right = jnp.array([[0, 1, -1], [0, 1, 1], [0, 0.5, 1]], jnp.float32)
    np.testing.assert_allclose(hits(agent, best, right), [2 / 3, 1 / 3, 1.5 / 3], rtol=1e-6)


def test_balanced_weights_by_hand() -> None:
    # Three of the first action, one of the third, none of the second: 4 / (2 x 3) and 4 / (2 x 1).
    action = jnp.array([[0, 0], [0, 2], [1, 2]])
    valid = jnp.array([[True, True], [True, True], [False, False]])
    found = class_weights(action, valid, 3, Axis())
    np.testing.assert_allclose(found, [[2 / 3, 2 / 3], [2 / 3, 2], [0, 0]])
    assert float(found.sum()) == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": ""}, "`behavior_cloning.data` .=''. must name a folder of episodes"),
        ({"data": "nowhere"}, "`behavior_cloning.data`: nowhere: is no folder of episodes"),
        ({"rollout_length": 8}, "`behavior_cloning.rollout_length` .=8. must be at least 1[0-9]: so many"),
    ],
)
def test_data_that_does_not_fit(data: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(cloning_config(**({"data": data} | fields)))


def test_weights_of_classes_need_classes(data: str) -> None:
    config = cloning_config(data, class_weights="balanced")
    env = dataclasses.replace(config.env, name="tests.algorithms.environments:Chance(actions='continuous')")
    with pytest.raises(ConfigError, match="`behavior_cloning.class_weights` .='balanced'. needs a Discrete"):
        build(dataclasses.replace(config, env=env))


def test_squashed_actions_are_learnt_as_they_were_before(tmp_path: Path) -> None:
    name = "tests.algorithms.environments:Chance(actions='continuous')"
    config = default_config("behavior_cloning")
    config.env.update(name=name, num_envs=1)
    config.network.head = "tanh_gaussian"
    head = algorithms.build_agent(resolve(config, 1), registry.spec_of(name)).head
    action = jnp.array([[-2.0, 2.0], [0.5, -1.9]])
    np.testing.assert_allclose(head.to_env(head.from_env(action)), action, atol=2.1e-3)
    assert np.isfinite(head.from_env(action)).all()


# The density of a mixture: tests/networks/test_gaussian_mixture.py; what learns from one: test_extras.py.
@pytest.mark.long
def test_two_right_actions_are_averaged_by_a_gaussian_but_not_by_a_mixture(tmp_path: Path) -> None:
    """Half of the demonstrations go left, half go right; straight ahead is what nobody has shown."""
    name = "tests.algorithms.environments:Chance(actions='continuous')"
    rng = np.random.default_rng(0)

    def episode() -> Episode:
        left = rng.choice([-1.0, 1.0], size=(20, 1))
        actions = np.concatenate([left, 0.5 * left], axis=1) + rng.normal(size=(20, 2)) * 0.05
        ends = np.arange(20) == 19
        return Episode(
            observations=rng.normal(size=(21, 3)).astype(np.float32),
            actions=actions.astype(np.float32),
            rewards=np.zeros(20, np.float32),
            terminations=ends,
            truncations=np.zeros(20, bool),
        )

    write_dataset(tmp_path, [episode() for _ in range(20)], registry.spec_of(name), {"wrappers": []})
    cost, greedy, drawn = {}, {}, {}
    for head in ("gaussian", "gaussian_mixture"):
        config = cloning_config(
            str(tmp_path),
            "none",
            rollout_length=100,
            sequence_length=1,
            num_minibatches=20,
            learning_rate=1e-2,
        )
        config = dataclasses.replace(
            config,
            env=dataclasses.replace(config.env, name=name),
            network=dataclasses.replace(config.network, head=head, mixture_components=3),
        )
        iteration = build(config)
        algorithm, state, _ = parts(iteration)
        many = jax.jit(lambda s, i=iteration: jax.lax.scan(lambda s, _: i.iterate(s), s, length=20))
        state, metrics = many(state)
        cost[head] = row(jax.tree.map(lambda x: x[-1], metrics))["behavior_cloning/validation_loss"]
        agent, obs = algorithm.agent, jnp.asarray(rng.normal(size=(400, 3)), jnp.float32)
        out = agent.forward(state.learner.policy, obs, agent.initial_carry(400), jnp.ones(400, bool), None)
        greedy[head] = np.asarray(agent.to_env(agent.greedy(out)))
        drawn[head] = np.asarray(agent.choose(out, agent.draw_noise(jax.random.key(3), (400,)))[0])
    assert np.abs(greedy["gaussian"]).max() < 0.5
    side = np.sign(greedy["gaussian_mixture"][:, :1])
    np.testing.assert_allclose(greedy["gaussian_mixture"], side * [[1.0, 0.5]], atol=0.1)
    # Both sides are drawn about as often, and nothing between them.
    assert 120 < (drawn["gaussian_mixture"][:, 0] > 0).sum() < 280
    assert (np.abs(np.abs(drawn["gaussian_mixture"]) - [1.0, 0.5]) < 0.4).all()
    # Two sides cost log 2, and log std + log(2 pi e) / 2 for each number.
    exact = np.log(2) + 2 * (np.log(0.05) + 0.5 * np.log(2 * np.pi * np.e))
    assert abs(cost["gaussian_mixture"] - exact) < 1.0
    assert cost["gaussian"] > exact + 3
