"""SAC with a recurrent network: targets, losses and errors beside a loop of single steps, and its burn-in."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.algorithms.replay import SequenceBatch
from jaxrl.algorithms.sac.agent import CRITIC
from jaxrl.algorithms.sac.sac import SAC, SACState
from jaxrl.config import ConfigError
from jaxrl.networks.gaussians import TanhGaussian
from jaxrl.types import PyTree
from tests.algorithms.draws import sequences
from tests.algorithms.tiny import algorithm_of, tiny_config

N, K, LEARNT = 5, 2, 8
TEMPERATURE = 0.3


@functools.cache
def own(**fields: Any) -> SAC:
    sizes = {"learner__batch_size": N, "env__num_envs": N, "learner__capacity": N * 32}
    return algorithm_of(tiny_config("recurrent_sac", log__layers=False, **sizes, **fields))


def first(algorithm: SAC) -> SACState:
    learner = algorithm.init(jax.random.key(0), algorithm.hyperparameters(algorithm.config))
    # Unlike the critics, so that it shows which of the two was asked.
    return dataclasses.replace(
        learner,
        target=algorithm.agent.critics.init(jax.random.key(1)),
        log_temperature=jnp.log(jnp.float32(TEMPERATURE)),
    )


def batch_of(algorithm: SAC) -> SequenceBatch:
    random = np.random.default_rng(1)
    actions = algorithm.agent.spec.action_space.shape
    return sequences(
        *(algorithm.agent, algorithm.section.burn_in, LEARNT, K, N),
        action_mask=None,
        action=random.normal(size=(LEARNT, N, *actions)).astype(np.float32),
        reward=random.normal(size=(LEARNT, K, N)).astype(np.float32),
    )


def step_by_step(
    algorithm: SAC, learner: SACState, critic: PyTree, batch: SequenceBatch
) -> tuple[list[TanhGaussian], list[PyTree]]:
    """The policy's distributions and what the critics have seen, one row after the other, as acting does."""
    agent, carry = algorithm.agent, batch.carry
    distributions, seen = [], []

    @jax.jit
    def step(obs: jax.Array, carry: PyTree, reset: jax.Array) -> tuple[Any, Any, Any]:
        out = agent.apply(learner.policy, obs, carry, reset, None)
        memory, after = agent.critics.see(critic, obs, carry, reset)
        return out.distribution, memory, {**out.carry, **after}

    for t in range(len(batch.reset)):
        found, memory, carry = step(batch.obs[t : t + 1], carry, batch.reset[t : t + 1])
        distributions.append(found)
        seen.append(memory)
    return distributions, seen


def density(distribution: TanhGaussian, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(action before tanh, its log-probability after it) [N], by hand."""
    mean, log_std = (np.float64(x[0]) for x in (distribution.mean, distribution.log_std))
    u = mean + np.exp(log_std) * noise
    log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - np.log1p(-(np.tanh(u) ** 2))
    return u, log_prob.sum(axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("burn_in", [pytest.param(0, marks=pytest.mark.long), 3])
def test_losses_and_errors_beside_a_loop(burn_in: int) -> None:
    algorithm = own(learner__burn_in=burn_in)
    learner, batch, key = first(algorithm), batch_of(algorithm), jax.random.key(7)

    @jax.jit
    def update(learner: SACState, batch: SequenceBatch) -> tuple[SACState, dict[str, jax.Array], jax.Array]:
        after, _, sums, errors = algorithm._update(learner, batch, key)
        return after, sums, errors

    after, sums, errors = update(learner, batch)
    rows = algorithm._rows(learner, batch)
    noises = [np.float64(algorithm._noise(rows, key, draw)) for draw in (0x534144, 0x534143)]
    values = jax.jit(algorithm.agent.critics.values)

    def q(critic: PyTree, seen: PyTree, u: np.ndarray) -> np.ndarray:
        return np.float64(values(critic, seen, jnp.tanh(jnp.float32(u))[None])[:, 0])

    critic, changed = learner.policy.params[CRITIC], after.policy.params[CRITIC]
    policy, seen = step_by_step(algorithm, learner, critic, batch)
    of_target = step_by_step(algorithm, learner, learner.target, batch)[1]
    of_changed = step_by_step(algorithm, learner, changed, batch)[1]
    gamma, b = algorithm.section.gamma, jax.device_get(batch)
    found = {"critic": 0.0, "q": 0.0, "policy": 0.0, "log_prob": 0.0}
    distances: list[list[float]] = [[] for _ in range(N)]
    for t in range(LEARNT):
        at = burn_in + t
        taken = q(critic, seen[at], b.action[t])
        u, log_prob = density(policy[at], noises[1][t])
        soft = TEMPERATURE * log_prob - q(changed, of_changed[at], u).min(axis=0)
        for n in range(N):
            if not b.usable[t, n]:
                continue
            m = int(b.counts[t, :, n].sum())
            next_u, next_log_prob = density(policy[at + m], noises[0][t])
            following = q(learner.target, of_target[at + m], next_u).min(axis=0) - TEMPERATURE * next_log_prob
            target = sum(gamma**k * float(b.reward[t, k, n]) for k in range(m))
            target += 0.0 if b.terminated[t, n] else gamma**m * following[n]
            distance = taken[:, n] - target
            found["critic"] += 0.5 * float(b.weight[n]) * float((distance**2).sum())
            found["q"] += float(taken[:, n].mean())
            found["policy"] += float(soft[n])
            found["log_prob"] += float(log_prob[n])
            distances[n].append(float(np.abs(distance).mean()))
    count = int(b.usable.sum())
    for name, total in found.items():
        np.testing.assert_allclose(sums[name], total / count, rtol=2e-4, atol=1e-5, err_msg=name)
    expected = [0.9 * max(x) + 0.1 * float(np.mean(x)) if x else 0.0 for x in distances]
    np.testing.assert_allclose(errors, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_no_gradient_enters_the_burn_in() -> None:
    algorithm = own(learner__burn_in=3)
    learner, batch = first(algorithm), batch_of(algorithm)
    batch = dataclasses.replace(batch, reset=jnp.zeros_like(batch.reset))  # the carry reaches all rows

    def loss(obs: jax.Array) -> jax.Array:
        given = dataclasses.replace(batch, obs=obs)
        rows = algorithm._rows(learner, given)
        actor = {name: x for name, x in learner.policy.params.items() if name != CRITIC}
        seen = rows.see(learner.policy.params[CRITIC])
        return sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves((seen, rows.policy(actor))))

    by_obs = jax.jit(jax.grad(loss))(batch.obs)
    np.testing.assert_array_equal(by_obs[:3], 0.0)
    assert (jnp.abs(by_obs[3 : 3 + LEARNT]) > 0).any(axis=-1).all()


@pytest.mark.slow
def test_acting_carries_the_memories_of_policy_and_critics() -> None:
    algorithm = own(learner__burn_in=0)
    learner, batch = first(algorithm), batch_of(algorithm)
    policy, _ = step_by_step(algorithm, learner, learner.policy.params[CRITIC], batch)
    carry, forward = batch.carry, jax.jit(algorithm.agent.forward)
    for t, expected in enumerate(policy[:4]):
        out = forward(algorithm.acting(learner), batch.obs[t], carry, batch.reset[t], None)
        assert out.carry.keys() == batch.carry.keys() == {"policy", "q0", "q1"}
        np.testing.assert_allclose(out.distribution.mean, expected.mean[0], rtol=1e-5, atol=1e-6)
        carry = out.carry


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"network__core": "none"}, "`sac.trace_length` .=8. must be 0: .* `network.core` is 'none'"),
        ({"learner__hindsight": "future"}, "`sac.hindsight` .='future'. needs `network.core='none'`"),
        ({"learner__overlap": 8}, "`sac.overlap` .=8. must be below `sac.trace_length` .=8."),
        ({"learner__overlap": 3}, "`sac.trace_length` .=8. less `sac.overlap` .=3. must divide `sac.rollout"),
        ({"learner__burn_in": 60}, "`sac.capacity` .=256. is below a batch: 8 environments keep 0 whole"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        algorithm_of(tiny_config("recurrent_sac", log__layers=False, **fields))
    assert "\n" not in str(error.value)
