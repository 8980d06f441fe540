"""`examples/ppo_lstm.py` learns what `configs/ppo.py` learns, and updates as `jaxrl train ppo` does."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.networks import normalizer
from jaxrl.types import Trajectory
from tests.compiled_programs import loud, start, tiny_program, with_policy

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example, freshly imported."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("ppo_lstm")
    sys.modules.pop("ppo_lstm")


def first_position(page: Any, params_key: int = 0) -> tuple[Any, Any, Any]:
    """(parameters that react to the memory, statistics, position) before a first step."""

    @jax.jit  # operation by operation it takes four times as long
    def start() -> tuple[Any, Any, Any]:
        env_state, obs_BO = page.env.reset(jax.random.split(jax.random.key(1), page.B))
        stats = normalizer.update(normalizer.init(obs_BO[0]), obs_BO)
        carry_B = page.network.initial_carry(page.B)
        position = page.Position(env_state, obs_BO, jnp.ones(page.B, bool), carry_B, jnp.zeros(page.B))
        return loud(page.network.init(jax.random.key(params_key))), stats, position

    return start()


@pytest.mark.slow
def test_an_update_is_that_of_jaxrl(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same rollout, its episodes ended at random: the same parameters and statistics after it."""
    monkeypatch.setattr(page, "EPOCHS", 1)
    monkeypatch.setattr(page, "MINIBATCHES", 1)
    monkeypatch.setattr(page, "ENTROPY_COEF", 0.1)
    params, stats, position = first_position(page)
    rollout = jax.jit(page.rollout)
    position, _, _ = rollout(params, stats, position, jax.random.key(2))  # to start inside episodes
    position, record_TB, last_value_B = rollout(params, stats, position, jax.random.key(3))
    noise = jax.random.normal(jax.random.key(4), (4, page.T, page.B))
    record_TB |= {
        "terminated": noise[0] > 1.5,
        "truncated": noise[1] > 1.5,
        "final_value": noise[2],
        "log_prob": record_TB["log_prob"] + 0.2 * noise[3],  # so that some ratios are clipped
    }
    assert (record_TB["terminated"] & record_TB["truncated"]).any()

    program = tiny_program(
        page.env.env,
        env__num_envs=page.B,
        network__hidden_sizes=page.config.hidden_sizes,
        network__core_size=page.config.core_size,
        normalize__observations=True,
        ppo__rollout_length=page.T,
        ppo__sequence_length=page.L,
        ppo__num_epochs=1,
        ppo__num_minibatches=1,
        ppo__learning_rate=page.LEARNING_RATE,
        ppo__entropy_coef=page.ENTROPY_COEF,
    )
    renamed = {"head" if name == "policy" else name: x for name, x in params.items()}
    learner = with_policy(start(program), params=renamed, obs_stats=stats).learner
    learn = jax.jit(program.iteration.learning.algorithm.learn)
    update = jax.jit(page.update)
    norms = []
    for size in (1.0, 10.0):
        sized = record_TB | {"reward": size * record_TB["reward"]}
        trajectory = trajectory_of(page, sized, position.obs_BO, last_value_B)
        learned = learn(learner, trajectory, jax.random.key(5))
        expected = learned.learner
        start_of_adam = page.optimizer.init(params)
        found, opt_state = update(params, start_of_adam, stats, sized, last_value_B, jax.random.key(6))
        # The first moments are a tenth of the clipped gradient. Names sort alike in both trees.
        assert_close(opt_state[1][0].mu, expected.opt_state[1].mu)
        assert_close(found, expected.policy.params)
        assert_close(normalizer.update(stats, record_TB["obs"]), expected.policy.obs_stats)
        norms.append(learned.metrics["grad/norm"].value())
    assert norms[0] < page.MAX_GRAD_NORM < norms[1]


def trajectory_of(page: Any, record_TB: dict[str, Any], next_obs: Any, last_value_B: Any) -> Trajectory:
    """A rollout of the page as jaxrl's PPO takes it."""
    return Trajectory(
        obs=record_TB["obs"],
        reset=record_TB["reset"],
        action=record_TB["action"],
        action_mask=None,
        reward=record_TB["reward"],
        terminated=record_TB["terminated"],
        truncated=record_TB["truncated"],
        carry={"policy": jax.tree.map(lambda x: x[:: page.L], record_TB["carry"]["trunk"])},
        next_obs=next_obs,
        extras={"log_prob": record_TB["log_prob"], "value": record_TB["value"]},
        bootstrap=record_TB["final_value"],
        last=last_value_B,
    )


def assert_close(found: Any, expected: Any) -> None:
    """All numbers of two trees, up to sums in another order."""
    flat, wanted = (np.asarray(jax.flatten_util.ravel_pytree(x)[0]) for x in (found, expected))
    np.testing.assert_allclose(flat, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
def test_a_time_limit_is_no_end(page: Any) -> None:
    """The value at a cut is that of the observation that would have come next, with the memory so far."""
    params, stats, position = first_position(page)
    late = dataclasses.replace(position.env_state.env, time=jnp.full(page.B, 499))
    position = position._replace(env_state=dataclasses.replace(position.env_state, env=late))
    _, record_TB, _ = jax.jit(page.rollout)(params, stats, position, jax.random.key(2))
    assert record_TB["truncated"][0].all()
    assert not record_TB["terminated"][0].any()
    assert record_TB["reset"][1].all()

    raw = page.env.env
    keys = jax.random.split(jax.random.key(3), page.B)
    _, timestep = jax.jit(jax.vmap(raw.step))(keys, late, record_TB["action"][0])
    both = jnp.stack([position.obs_BO, timestep.obs])
    reset = jnp.zeros((2, page.B), bool).at[0].set(True)
    _, value, _ = jax.jit(page.forward)(params, stats, both, position.carry_B, reset)
    np.testing.assert_allclose(record_TB["final_value"][0], value[1], rtol=1e-4, atol=1e-6)
    assert np.abs(record_TB["final_value"][0] - record_TB["value"][1]).max() > 1e-3
