"""DQN: its targets beside a loop, its target network, exploration and warm-up, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.dqn import DQN
from jaxrl.algorithms.q_replay_algorithm import QState
from jaxrl.algorithms.q_values import ladder, polyak_update
from jaxrl.algorithms.replay import Transitions
from jaxrl.config import ConfigError
from tests.algorithms.draws import drawn, on_device
from tests.algorithms.tiny import (
    ENVS,
    LENGTH,
    STEPS,
    algorithm_of,
    assert_equal,
    first_state,
    iteration_of,
    tiny_config,
)

ROWS, ACTIONS = 6, 3


def first(own: DQN) -> QState:
    learner = own.init(jax.random.key(0), own.hyperparameters(own.config))
    # Unlike the network, so that it shows which of the two was asked.
    return dataclasses.replace(learner, target=own.agent.init_params(jax.random.key(1)))


def batch_of(own: DQN, ready: bool = True) -> Transitions:
    random = np.random.default_rng(0)
    shape = own.agent.spec.observation_space.shape
    steps = np.array([1, 2, 3, 3, 1, 2])
    mask = random.random((2, ROWS, ACTIONS)) < 0.7
    mask[..., 0] = True
    obs = random.normal(size=(2, ROWS, *shape)).astype(np.float32)
    return on_device(
        Transitions(
            obs=obs[0],
            action=np.zeros(ROWS, np.int32),
            action_mask=mask[0],
            reward=random.normal(size=(3, ROWS)).astype(np.float32),
            counts=np.arange(3)[:, None] < steps,
            terminated=np.array([True, False, False, True, False, False]),
            next_obs=obs[1],
            next_mask=mask[1],
            usable=np.array([True] * 5 + [False]) & ready,
            weight=np.linspace(0.1, 1.0, ROWS).astype(np.float32),
            **drawn(ROWS, ready),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_errors_and_loss_beside_a_loop(double: bool) -> None:
    own = algorithm_of(tiny_config("dqn", learner__double=double, log__layers=False))
    learner, batch = first(own), batch_of(own)
    learned = jax.jit(own.learn)(learner, batch, jax.random.key(0))

    def q_values(params: Any, obs: Any, mask: Any) -> np.ndarray:
        acting = dataclasses.replace(learner.policy, params=params)
        carry, reset = own.agent.initial_carry(ROWS), jnp.ones(ROWS, bool)
        return np.asarray(own.agent.forward(acting, obs, carry, reset, mask).q)

    here = q_values(learner.policy.params, batch.obs, batch.action_mask)
    online = q_values(learner.policy.params, batch.next_obs, batch.next_mask)
    target = q_values(learner.target, batch.next_obs, batch.next_mask)
    loss = 0.0
    for n in range(5):
        best = np.argmax((online if double else target)[n])
        steps = int(batch.counts[:, n].sum())
        expected = sum(0.99**k * float(batch.reward[k, n]) for k in range(steps))
        if not batch.terminated[n]:
            expected += 0.99**steps * target[n, best]
        error = here[n, 0] - expected
        assert float(learned.feedback.error[n]) == pytest.approx(abs(error), rel=1e-4, abs=1e-5)
        loss += 0.5 * float(batch.weight[n]) * error**2 / 5
    assert float(learned.metrics["loss/value"].value()) == pytest.approx(loss, rel=1e-4)
    assert not learned.feedback.usable[5]


@functools.cache
def of_two_updates() -> tuple[DQN, Any]:
    """One that copies its target network every other update, and its compiled `learn`."""
    own = algorithm_of(tiny_config("dqn", learner__target_period=2, log__layers=False))
    return own, jax.jit(own.learn)


@pytest.mark.slow
def test_target_network_is_copied_in_its_turn() -> None:
    own, learn = of_two_updates()
    batch = batch_of(own)
    start = first(own)
    once = learn(start, batch, jax.random.key(0)).learner
    twice = learn(once, batch, jax.random.key(0)).learner
    assert_equal(once.target, start.target)
    assert_equal(twice.target, twice.policy.params)


def test_polyak_average() -> None:
    found = polyak_update(jnp.float32(1.0), jnp.float32(3.0), jnp.float32(0.25))
    assert float(found) == 1.5


def test_nothing_changes_before_there_is_enough() -> None:
    own, learn = of_two_updates()
    start = first(own)
    # As if it were the target's turn.
    start = dataclasses.replace(start, target=jax.tree.map(lambda x: x + 1.0, start.target))
    learned = learn(start, batch_of(own, ready=False), jax.random.key(0))
    assert_equal(learned.learner, start)
    assert learned.metrics["loss/value"].is_empty
    assert own.is_finite(start, learned.metrics)


def test_epsilon_falls_with_the_updates() -> None:
    config = tiny_config("dqn", learner__exploration_fraction=0.5)
    own = algorithm_of(config)
    start = first(own)
    for share, epsilon in ((0.0, 1.0), (0.25, 0.525), (0.5, 0.05), (1.0, 0.05)):
        updates = jnp.int32(share * config.total_updates)
        found = own.exploration(dataclasses.replace(start, updates=updates))
        assert float(found) == pytest.approx(epsilon)


def test_epsilon_follows_the_clock_of_a_budget_in_seconds() -> None:
    """All schedules of a run follow one clock; how many updates fit into the seconds is not known."""
    config = tiny_config("dqn", learner__exploration_fraction=0.5)
    own = algorithm_of(config)
    start = dataclasses.replace(first(own), updates=jnp.int32(config.total_updates))
    for elapsed, epsilon in ((0.0, 1.0), (0.25, 0.525), (0.5, 0.05), (1.0, 0.05)):
        found = own.exploration(dataclasses.replace(start, elapsed=jnp.float32(elapsed)))
        assert float(found) == pytest.approx(epsilon)


@pytest.mark.parametrize(("starts", "learning"), [(0, 10), (STEPS, 10), (STEPS + 1, 9), (2 * STEPS, 9)])
def test_planned_updates_begin_when_learning_starts(starts: int, learning: int) -> None:
    """Of ten iterations with two updates each, those that keep less than `learning_starts` make none."""
    assert tiny_config("dqn", learner__learning_starts=starts).total_updates == 2 * learning


@pytest.mark.parametrize("algorithm", ["r2d2", "dagger", "recurrent_sac"])
def test_planned_updates_begin_with_the_first_whole_sequence(algorithm: str) -> None:
    """A burn-in of a whole rollout: the first sequence ends in the second one."""
    config = tiny_config(algorithm, learner__burn_in=LENGTH, learner__batch_size=ENVS)
    assert config.total_updates == 2 * 9


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_planned_updates_begin_with_the_first_whole_return(algorithm: str) -> None:
    config = tiny_config(algorithm, learner__n_step=LENGTH, learner__learning_starts=0)
    assert config.total_updates == config.updates_per_iteration * 9


@pytest.mark.slow
def test_schedules_end_with_the_run_however_late_learning_starts() -> None:
    fields = {"learning_starts": STEPS + 1, "exploration_fraction": 1.0, "schedule": "linear"}
    config = tiny_config("dqn", stop__steps=4 * STEPS, **{f"learner__{x}": y for x, y in fields.items()})
    iteration = iteration_of(config)
    iterate = jax.jit(iteration.iterate)
    state = first_state(iteration)
    for _ in range(4):
        state, _ = iterate(state)
    own = iteration.learning.algorithm
    assert int(state.learner.updates) == config.total_updates == 6
    assert own.scheduled_values(state.learner)["learning rate"] == 0
    assert float(own.exploration(state.learner)) == pytest.approx(config.dqn.exploration_end)


@pytest.mark.slow
def test_learning_rate_falls_with_the_updates() -> None:
    """A linear schedule scales Adam's step by the share of the run that is left."""
    constant, learn = of_two_updates()
    own = algorithm_of(tiny_config("dqn", learner__schedule="linear", log__layers=False))
    total = constant.config.total_updates
    start = dataclasses.replace(first(own), updates=jnp.int32(3 * total // 4))
    after = [x(start, batch_of(own), jax.random.key(0)).learner for x in (learn, jax.jit(own.learn))]
    steps = [jax.tree.map(jnp.subtract, x.policy.params, start.policy.params) for x in after]
    share = 1 - (3 * total // 4) / total
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, share * x, rtol=1e-3, atol=1e-6), *steps)
    assert own.scheduled_values(start)["learning rate"] == pytest.approx(0.01 * share)


@pytest.mark.slow
def test_ladder_of_epsilons() -> None:
    expected = [0.4 ** (1 + 7 * i / 7) for i in range(8)]
    np.testing.assert_allclose([float(ladder(i, 8)) for i in range(8)], expected, rtol=1e-5)
    assert float(ladder(0, 1)) == pytest.approx(0.4)
    own = algorithm_of(tiny_config("dqn", learner__exploration="ladder"))
    noise = jax.vmap(lambda i: own.agent.draw_noise(jax.random.key(0), (20_000,), i))(jnp.arange(ENVS))
    explores = (noise[..., 0] < own.exploration(first(own))).mean(axis=1)
    np.testing.assert_allclose(explores, expected, atol=0.02)
    assert "exploration" not in own.scheduled_values(first(own))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"env__name": "gymnax:Pendulum-v1"}, "`algorithm` .='dqn'. needs discrete actions; .*: use `sac`"),
        ({"network__core": "gru"}, "`network.core` .='gru'. must be 'none': .* use `r2d2`"),
        ({"learner__capacity": STEPS}, "`dqn.capacity` .=128. is below a batch: 16 whole rows"),
        (
            {"learner__hindsight": "future"},
            "`dqn.hindsight` .='future'. needs an environment with goals, .* 'Chance', .* has none",
        ),
        (
            {"learner__hindsight": "final", "network__core": "gru"},
            "`dqn.hindsight` .='final'. needs `network.core='none'`, not 'gru': stored carries belong",
        ),
        (
            {"learner__learning_starts": 3 * STEPS},
            "`dqn.capacity` .=256. must be at least",
        ),
    ],
)
def test_what_cannot_be_is_named_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        algorithm_of(tiny_config("dqn", **fields))
    assert "\n" not in str(error.value)


def test_devices_share_out_groups() -> None:
    with pytest.raises(ConfigError, match="no common divisor that 2 devices share out|must be"):
        tiny_config("dqn", devices=2, learner__batch_size=127)


def test_memory_is_that_of_the_section() -> None:
    plan = algorithm_of(tiny_config("dqn", learner__checkpoint=False, learner__learning_starts=9)).memory
    assert (plan.rows, plan.groups, plan.learning_starts) == (2 * LENGTH, ENVS, 2)
    assert not plan.checkpointed
